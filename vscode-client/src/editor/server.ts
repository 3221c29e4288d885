/** The connection to the server: one client for all folders. */

import * as vscode from "vscode";
import type { LanguageClient } from "vscode-languageclient/node";
import { advance, runOfToken, type Progress, type Run } from "../core/runs";
import { answer, initializationOptions, type Declared, type Inspection, type Json } from "../core/settings";
import type { Commands } from "../protocol";
import { complain, inform, warn } from "./notify";

export type State = "stopped" | "starting" | "running";

export class Server implements vscode.Disposable {
  private client: LanguageClient | undefined;
  private starting: Promise<void> | undefined;
  private readonly changed = new vscode.EventEmitter<void>();
  private readonly advanced = new vscode.EventEmitter<Run>();
  private readonly ended = new vscode.EventEmitter<string>();
  private readonly going = new Map<string, Run>();

  /** The server was started or stopped. */
  readonly onChanged = this.changed.event;
  /** A run began or went on. */
  readonly onAdvanced = this.advanced.event;
  /** A run is over; its id. */
  readonly onEnded = this.ended.event;
  state: State = "stopped";
  program: string | undefined;

  constructor(
    private readonly log: vscode.LogOutputChannel,
    private readonly declared: { readonly [key: string]: Declared },
    private readonly neutralFolder: string,
  ) {}

  get runs(): readonly Run[] {
    return [...this.going.values()];
  }

  run(runId: string): Run | undefined {
    return this.going.get(runId);
  }

  async start(program: string): Promise<void> {
    await this.stop();
    this.program = program;
    this.become("starting");
    this.starting = this.connect(program);
    try {
      await this.starting;
      this.become("running");
    } catch (error) {
      this.become("stopped");
      throw error;
    } finally {
      this.starting = undefined;
    }
  }

  async stop(): Promise<void> {
    await this.starting?.catch(() => undefined);
    const client = this.client;
    this.client = undefined;
    for (const runId of [...this.going.keys()]) {
      this.end(runId);
    }
    if (client !== undefined) {
      await client.dispose().catch((error: unknown) => this.log.warn(String(error)));
      this.become("stopped");
    }
  }

  /** Sends a command. Rejects with the server's reason. */
  async send<C extends keyof Commands>(command: C, params: Commands[C][0]): Promise<Commands[C][1]> {
    await this.starting;
    if (this.client === undefined) {
      throw new Error(vscode.l10n.t("The server of FrogNano does not run."));
    }
    return await this.client.sendRequest("workspace/executeCommand", { command, arguments: [params] });
  }

  async cancel(runId: string): Promise<void> {
    await this.send("frog.cancel", { runId });
  }

  /** The URI as the server is told of it. */
  uri(uri: vscode.Uri): string {
    return this.client?.code2ProtocolConverter.asUri(uri) ?? uri.toString();
  }

  dispose(): void {
    void this.stop();
    this.changed.dispose();
    this.advanced.dispose();
    this.ended.dispose();
  }

  private async connect(program: string): Promise<void> {
    // Loaded when it is needed: it is nine tenths of what there is to load.
    const { LanguageClient, RevealOutputChannelOn } = await import("./client");
    const client = new LanguageClient(
      "frog",
      "FrogNano",
      { command: program, args: ["serve"], options: { cwd: this.neutralFolder } },
      {
        documentSelector: [{ scheme: "file" }],
        initializationOptions: initializationOptions(vscode.workspace.isTrusted),
        outputChannel: this.log,
        revealOutputChannelOn: RevealOutputChannelOn.Never,
        middleware: {
          handleWorkDoneProgress: (token, params, next) => {
            const runId = runOfToken(token);
            if (runId === undefined) {
              next(token, params);
            } else {
              this.take(runId, params);
            }
          },
          workspace: {
            configuration: (params) => params.items.map((item) => this.settings(item.section, item.scopeUri)),
          },
        },
      },
    );
    this.client = client;
    await client.start();
    // The texts of the server's messages are made of issues, names and the model's words.
    client.onNotification("window/showMessage", (params: { type: number; message: string }) => {
      void this.show(params.type, params.message, []);
    });
    client.onRequest(
      "window/showMessageRequest",
      async (params: { type: number; message: string; actions?: { title: string }[] }) => {
        const chosen = await this.show(params.type, params.message, params.actions?.map((action) => action.title) ?? []);
        return params.actions?.find((action) => action.title === chosen) ?? null;
      },
    );
    const known = client.initializeResult?.capabilities.executeCommandProvider?.commands ?? [];
    if (!known.includes("frog.proposal")) {
      void warn(vscode.l10n.t("The server {0} is older than this extension: upgrade frog-lsp.", program));
    }
  }

  private async show(type: number, message: string, choices: string[]): Promise<string | undefined> {
    const show = type === 1 ? complain : type === 2 ? warn : inform;
    return await show(message, ...choices);
  }

  private settings(section: string | undefined, scopeUri: string | undefined): Json {
    if (section !== "frog") {
      return null;
    }
    const scope = scopeUri === undefined ? undefined : vscode.Uri.parse(scopeUri);
    const all = vscode.workspace.getConfiguration(undefined, scope);
    const inspect = (key: string): Inspection | undefined => all.inspect(key);
    return answer(this.declared, inspect, scope !== undefined, vscode.workspace.isTrusted);
  }

  private take(runId: string, progress: Progress): void {
    const run = advance(this.going.get(runId), runId, progress);
    if (run === undefined) {
      this.end(runId);
    } else {
      this.going.set(runId, run);
      this.advanced.fire(run);
    }
  }

  private end(runId: string): void {
    this.going.delete(runId);
    this.ended.fire(runId);
  }

  private become(state: State): void {
    this.state = state;
    this.changed.fire();
  }
}
