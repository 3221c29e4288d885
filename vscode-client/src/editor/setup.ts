/** Finds the server, or installs it into an environment of the extension's own. */

import { spawn, type ChildProcess } from "node:child_process";
import { constants } from "node:fs";
import * as fs from "node:fs/promises";
import * as os from "node:os";
import * as path from "node:path";
import * as vscode from "vscode";
import { advice, commands, isNewEnough, PYTHONS, stage, VERSION_ARGUMENTS, type Command } from "../core/install";
import { findServer, isFound, isInWorkspace, ownPython, type Places, type Search, type Wishes } from "../core/search";
import { complain, warn } from "./notify";

const HAS_GROUPS = process.platform !== "win32";

export class Setup {
  constructor(
    private readonly storage: string,
    private readonly log: vscode.LogOutputChannel,
  ) {}

  places(): Places {
    const folders = vscode.workspace.workspaceFolders ?? [];
    return {
      platform: process.platform,
      searchPath: process.env["PATH"] ?? "",
      home: os.homedir(),
      workspaceFolders: folders.filter((folder) => folder.uri.scheme === "file").map((folder) => folder.uri.fsPath),
      ownFolder: path.join(this.storage, "server"),
    };
  }

  async find(): Promise<Search> {
    const found = await findServer(wishes(), this.places(), realProgram);
    this.log.info(isFound(found) ? `server: ${found.program} (${found.origin})` : "server: none found");
    return found;
  }

  /** Says what is missing and offers to install; whether there is a server then. */
  async offer(search: Search): Promise<boolean> {
    if (isFound(search)) {
      return true;
    }
    const { t } = vscode.l10n;
    const { problem } = search;
    if (problem !== undefined) {
      const settings = t("Open Settings");
      const text = t("The setting {0} names {1}, and there is no frog-lsp.", problem.setting, problem.named);
      if ((await complain(text, settings)) === settings) {
        await vscode.commands.executeCommand("workbench.action.openSettings", problem.setting);
      }
      return false;
    }
    const install = t("Install");
    const text = t(
      "FrogNano needs its server, frog-lsp, and none was found. Install it into an environment of this extension? Packages are downloaded and llama-cpp-python is compiled: 4 to 10 minutes, once.",
    );
    return (await warn(text, install)) === install && (await this.install());
  }

  /** Installs with visible progress; whether it succeeded. */
  async install(): Promise<boolean> {
    const { t } = vscode.l10n;
    const places = this.places();
    const python = await this.newestPython(places);
    if (python === undefined) {
      void complain(t("No Python from 3.11 was found on PATH. Install one, or set frog.path to an installed frog-lsp."));
      return false;
    }
    const printed: string[] = [];
    const isInstalled = await vscode.window.withProgress(
      { location: vscode.ProgressLocation.Notification, title: t("Installing frog-lsp"), cancellable: true },
      async (progress, token) => {
        for (const command of commands(python, places.ownFolder, ownPython(places))) {
          const isDone = await this.run(command, token, (line) => {
            printed.push(line);
            const message = stage(line, t);
            if (message !== undefined) {
              progress.report({ message });
            }
          });
          if (!isDone) {
            return false;
          }
        }
        return true;
      },
    );
    if (!isInstalled) {
      // What is half installed would be found and started.
      await fs.rm(places.ownFolder, { recursive: true, force: true });
      const logs = t("Show Logs");
      const text = t("frog-lsp could not be installed. {0}", advice(printed.join("\n"), t));
      void complain(text, logs).then((chosen) => (chosen === logs ? this.log.show() : undefined));
    }
    return isInstalled;
  }

  private async newestPython(places: Places): Promise<string | undefined> {
    for (const name of PYTHONS) {
      for (const folder of places.searchPath.split(path.delimiter)) {
        const program = path.join(folder, places.platform === "win32" ? `${name}.exe` : name);
        const real = path.isAbsolute(folder) && !isInWorkspace(folder, places) ? await realProgram(program) : undefined;
        if (real === undefined || isInWorkspace(real, places)) {
          continue;
        }
        let printed = "";
        const command = { program, arguments: VERSION_ARGUMENTS };
        if ((await this.run(command, undefined, (line) => (printed += line))) && isNewEnough(printed)) {
          return program;
        }
      }
    }
    return undefined;
  }

  /** Runs a program to its end; whether it ended well. */
  private async run(
    command: Command,
    token: vscode.CancellationToken | undefined,
    take: (line: string) => void,
  ): Promise<boolean> {
    this.log.info(`$ ${command.program} ${command.arguments.join(" ")}`);
    return await new Promise((resolve) => {
      const child = spawn(command.program, command.arguments, {
        cwd: this.storage,
        stdio: ["ignore", "pipe", "pipe"],
        detached: HAS_GROUPS,
      });
      const cancelled = token?.onCancellationRequested(() => endGroup(child));
      for (const stream of [child.stdout, child.stderr]) {
        let rest = "";
        stream.setEncoding("utf8").on("data", (text: string) => {
          const lines = (rest + text).split("\n");
          rest = lines.pop() ?? "";
          lines.forEach((line) => {
            this.log.info(line);
            take(line);
          });
        });
      }
      child.on("error", (error) => this.log.error(error));
      child.on("close", (code) => {
        cancelled?.dispose();
        resolve(code === 0);
      });
    });
  }
}

/** Ends a program with all that it started: an installation has compilers below it. */
function endGroup(child: ChildProcess): void {
  if (!HAS_GROUPS || child.pid === undefined) {
    child.kill();
    return;
  }
  try {
    process.kill(-child.pid);
  } catch {
    // It has ended by itself.
  }
}

function wishes(): Wishes {
  const settings = vscode.workspace.getConfiguration("frog");
  // From the user's settings alone, whatever the scope that a setting has in the manifest.
  const own = <T>(key: string, otherwise: T): T => settings.inspect<T>(key)?.globalValue ?? otherwise;
  return {
    path: own("path", []),
    interpreter: own("interpreter", []),
    importStrategy: own("importStrategy", "fromEnvironment"),
  };
}

async function realProgram(program: string): Promise<string | undefined> {
  try {
    await fs.access(program, constants.X_OK);
    const real = await fs.realpath(program);
    return (await fs.stat(real)).isFile() ? real : undefined;
  } catch {
    return undefined;
  }
}
