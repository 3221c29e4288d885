/** Choosing a model: one of the catalog, a file, an endpoint. Kept in the user's own settings. */

import { execFile } from "node:child_process";
import { promisify } from "node:util";
import * as vscode from "vscode";
import { choiceOf, readModels } from "../core/models";
import { attempt } from "./notify";

const LIST_TIMEOUT_MS = 20_000;

export async function chooseModel(program: string, cwd: string): Promise<void> {
  await attempt(async () => {
    const { t } = vscode.l10n;
    const { stdout } = await promisify(execFile)(program, ["model", "list", "--json"], { cwd, timeout: LIST_TIMEOUT_MS });
    const models = readModels(stdout);
    const current = vscode.workspace.getConfiguration("frog.model").inspect<string>("path")?.globalValue;
    const file = { label: t("A GGUF file…"), description: "", detail: t("any chat model that knows tools") };
    const endpoint = { label: t("An endpoint…"), description: "", detail: t("an OpenAI-compatible server of yours") };
    const items = [...models.map((model) => choiceOf(model, current, t)), file, endpoint];
    const chosen = await vscode.window.showQuickPick(items, {
      title: t("Which model fixes your issues?"),
      matchOnDetail: true,
    });
    const model = models.find((other) => other.name === chosen?.label);
    if (model !== undefined) {
      await take(program, cwd, model.name, model.isInstalled);
    } else if (chosen === file) {
      await takeFile();
    } else if (chosen === endpoint) {
      await vscode.commands.executeCommand("workbench.action.openSettings", "frog.model");
    }
  });
}

async function take(program: string, cwd: string, name: string, isInstalled: boolean): Promise<void> {
  if (isInstalled) {
    await keep(name);
    return;
  }
  // The download is the user's own doing, in sight, and Ctrl-C ends it.
  const terminal = vscode.window.createTerminal({
    name: `frog-lsp model pull ${name}`,
    shellPath: program,
    shellArgs: ["model", "pull", name],
    cwd,
  });
  terminal.show();
  const listener = vscode.window.onDidCloseTerminal(async (closed) => {
    if (closed === terminal) {
      listener.dispose();
      if (closed.exitStatus?.code === 0) {
        await keep(name);
      }
    }
  });
}

async function takeFile(): Promise<void> {
  const files = await vscode.window.showOpenDialog({ canSelectMany: false, filters: { GGUF: ["gguf"] } });
  if (files?.[0] !== undefined) {
    await keep(files[0].fsPath);
  }
}

async function keep(path: string): Promise<void> {
  const settings = vscode.workspace.getConfiguration("frog.model");
  await settings.update("kind", undefined, vscode.ConfigurationTarget.Global);
  await settings.update("path", path, vscode.ConfigurationTarget.Global);
  void vscode.window.showInformationMessage(vscode.l10n.t("FrogNano uses {0} from the next run on.", path));
}
