/** Wires the parts. */

import * as fs from "node:fs/promises";
import * as vscode from "vscode";
import { report } from "./core/doctor";
import { isFound } from "./core/search";
import type { Declared } from "./core/settings";
import { Decisions } from "./editor/decisions";
import { Fixes } from "./editor/fixes";
import { chooseModel } from "./editor/models";
import { attempt } from "./editor/notify";
import { showProgress } from "./editor/progress";
import { Review } from "./editor/review";
import { openSample } from "./editor/sample";
import { Server } from "./editor/server";
import { Setup } from "./editor/setup";
import { Status } from "./editor/status";
import { Views } from "./editor/views";

const STARTS_ANEW = ["frog.path", "frog.interpreter", "frog.importStrategy"];

export function activate(context: vscode.ExtensionContext): void {
  const storage = context.globalStorageUri.fsPath;
  const log = vscode.window.createOutputChannel("FrogNano", { log: true });
  const manifest = context.extension.packageJSON as {
    contributes: { configuration: { properties: { [key: string]: Declared } } };
  };
  const server = new Server(log, manifest.contributes.configuration.properties, storage);
  const setup = new Setup(storage, log);
  const views = new Views(server);
  const review = new Review(server, views);
  const decisions = new Decisions(server, review, views);
  const status = new Status(server);

  async function start(isAsked: boolean): Promise<boolean> {
    await fs.mkdir(storage, { recursive: true });
    const search = await setup.find();
    await vscode.commands.executeCommand("setContext", "frogLsp.isInstalled", isFound(search));
    if (!isFound(search)) {
      return isAsked && (await setup.offer(search)) && (await start(false));
    }
    const isStarted = await attempt(async () => {
      await server.start(search.program);
      return true;
    });
    return isStarted === true;
  }

  async function ensureServer(): Promise<boolean> {
    return server.state === "running" || (await start(true));
  }

  async function withProgram(work: (program: string) => Promise<void>): Promise<void> {
    const search = await setup.find();
    const found = isFound(search) || !(await setup.offer(search)) ? search : await setup.find();
    if (isFound(found)) {
      await work(found.program);
    }
  }

  async function install(): Promise<void> {
    if ((await setup.install()) && (await start(false))) {
      await checkJail();
    }
  }

  async function checkJail(): Promise<void> {
    if (await ensureServer()) {
      await attempt(async () => {
        const result = await server.send("frog.doctor", {});
        status.take(result);
        await vscode.commands.executeCommand("setContext", "frogLsp.isChecked", result.ok);
        const page = views.put({ kind: "doctor", runId: "now", path: "doctor.txt" }, report(result, vscode.l10n.t));
        // A walkthrough, which is no text, stays in sight.
        const isOnText = vscode.window.activeTextEditor !== undefined;
        const viewColumn = isOnText ? vscode.ViewColumn.Active : vscode.ViewColumn.Beside;
        await vscode.window.showTextDocument(page, { preview: true, viewColumn });
      });
    }
  }

  async function cancelRun(given?: unknown): Promise<void> {
    const runs = server.runs;
    const node = given as { kind?: string; run?: { runId: string } } | undefined;
    const items = runs.map((run) => ({ label: run.title, description: run.doing, runId: run.runId }));
    const chosen = node?.run ?? (items.length > 1 ? await vscode.window.showQuickPick(items) : items[0]);
    if (chosen !== undefined) {
      await attempt(() => server.cancel(chosen.runId));
    }
  }

  async function showTranscript(given?: unknown): Promise<void> {
    const node = given as { run?: { runId: string }; row?: { runId: string } } | undefined;
    const runId = typeof given === "string" ? given : (node?.run ?? node?.row ?? server.runs[0] ?? review.waiting[0])?.runId;
    if (runId !== undefined) {
      await attempt(() => views.showTranscript(runId));
    }
  }

  const fixes = new Fixes(server, ensureServer);
  const commands: { [id: string]: (given?: unknown) => unknown } = {
    fixIssue: () => fixes.fixIssue(),
    fixProblem: () => fixes.fixProblem(),
    fixFailingTest: () => fixes.fixFailingTest(),
    fixTerminalSelection: () => fixes.fixTerminalSelection(),
    showProposals: (given) => decisions.show(given),
    apply: (given) => decisions.apply(given),
    discard: (given) => decisions.discard(given),
    openDiff: (given) => decisions.openDiff(given),
    toggleTick: () => review.toggle(),
    applyFile: (given) => decisions.applyPart(given),
    discardFile: (given) => decisions.discardPart(given),
    applyHunk: (given) => decisions.applyPart(given, true),
    discardHunk: (given) => decisions.discardPart(given, true),
    resolveConflict: (given) => decisions.resolveConflict(given),
    showTranscript,
    cancelRun,
    chooseModel: () => withProgram((program) => chooseModel(program, storage)),
    openSample: () => withProgram((program) => openSample(program, storage)),
    checkJail,
    installServer: install,
    restart: () => start(true),
    showLogs: () => log.show(),
  };
  context.subscriptions.push(
    log,
    server,
    views,
    review,
    status,
    showProgress(server),
    ...Object.entries(commands).map(([id, run]) => vscode.commands.registerCommand(`frogLsp.${id}`, run)),
    server.onEnded((runId) => {
      if (server.state === "running") {
        void attempt(() => decisions.announce(runId));
      }
    }),
    vscode.workspace.onDidGrantWorkspaceTrust(() => void start(false)),
    vscode.workspace.onDidChangeConfiguration((event) => {
      if (STARTS_ANEW.some((key) => event.affectsConfiguration(key))) {
        void start(false);
      }
    }),
  );
  if ((vscode.workspace.workspaceFolders ?? []).length > 0) {
    void start(false);
  }
}
