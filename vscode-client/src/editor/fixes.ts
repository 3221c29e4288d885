/** The commands that ask for a fix. */

import * as vscode from "vscode";
import { diagnosticsAt, isEmpty, withWords, type Here } from "../core/issue";
import type { FixParams, Range } from "../protocol";
import { attempt, inform, warn } from "./notify";
import type { Server } from "./server";

export class Fixes {
  constructor(
    private readonly server: Server,
    private readonly ensureServer: () => Promise<boolean>,
  ) {}

  /** Asks for words; what is open and selected goes along. */
  async fixIssue(): Promise<void> {
    const here = (await this.isReady()) ? await this.here() : undefined;
    if (here === undefined) {
      return;
    }
    const { t } = vscode.l10n;
    const isMarkdown = vscode.window.activeTextEditor?.document.languageId === "markdown";
    const words = await vscode.window.showInputBox({
      title: t("Fix an issue with FrogNano"),
      prompt: isMarkdown
        ? t("Say what is wrong; leave it empty where the open document says it.")
        : t("Say what is wrong. The open file and what is selected in it go along."),
      placeHolder: t("parse_date fails on '2024-02-29'"),
      validateInput: (text) => (text.trim() === "" && !isMarkdown ? t("Say what is wrong in a sentence.") : undefined),
    });
    if (words !== undefined) {
      await this.fix(words.trim() === "" ? { uri: here.uri } : withWords(here, words));
    }
  }

  /** The diagnostics under the cursor, of whatever made them. */
  async fixProblem(): Promise<void> {
    const editor = vscode.window.activeTextEditor;
    if (editor === undefined || !(await this.isReady())) {
      return;
    }
    const { document, selection } = editor;
    const all = vscode.languages.getDiagnostics(document.uri).map((found) => ({ found, range: rangeOf(found.range) }));
    const chosen = diagnosticsAt(all, rangeOf(selection)).map(({ found }) => diagnosticOf(found));
    if (chosen.length === 0) {
      void inform(vscode.l10n.t("There is no problem at the cursor. Use “Fix an Issue…” to say what is wrong."));
      return;
    }
    await this.fix({ uri: this.server.uri(document.uri), range: rangeOf(selection), diagnostics: chosen });
  }

  /** The selected output of a failing test: in the editor, else in the terminal. */
  async fixFailingTest(): Promise<void> {
    const here = (await this.isReady()) ? await this.here() : undefined;
    if (here === undefined) {
      return;
    }
    if (here.selection !== undefined) {
      await this.fix({ uri: here.uri, range: here.selection });
    } else {
      await this.fixOutput(here.uri);
    }
  }

  /** From the menu of the terminal: what is selected there, whatever is selected in an editor. */
  async fixTerminalSelection(): Promise<void> {
    const here = (await this.isReady()) ? await this.here() : undefined;
    if (here !== undefined) {
      await this.fixOutput(here.uri);
    }
  }

  private async fixOutput(uri: string): Promise<void> {
    const output = await terminalSelection();
    if (output === "") {
      void inform(vscode.l10n.t("Select the output of the failing test, in the terminal or in an editor."));
      return;
    }
    await this.fix({ uri, issue: output });
  }

  private async fix(params: FixParams): Promise<void> {
    await attempt(async () => {
      const { place } = await this.server.send("frog.fix", params);
      if (place > 0) {
        void inform(vscode.l10n.t("FrogNano works on something else first: place {0} in the queue.", place));
      }
    });
  }

  private async isReady(): Promise<boolean> {
    const { t } = vscode.l10n;
    if (!vscode.workspace.isTrusted) {
      const manage = t("Manage Trust");
      if ((await warn(t("FrogNano runs tools on a workspace only when you trust it."), manage)) === manage) {
        await vscode.commands.executeCommand("workbench.trust.manage");
      }
      return false;
    }
    if ((vscode.workspace.workspaceFolders ?? []).length === 0) {
      const open = t("Open Folder");
      if ((await inform(t("FrogNano fixes issues in a folder: open the project's."), open)) === open) {
        await vscode.commands.executeCommand("vscode.openFolder");
      }
      return false;
    }
    return await this.ensureServer();
  }

  /** The open file; where none of a folder is open, the folder that the user picks. */
  private async here(): Promise<Here | undefined> {
    const editor = vscode.window.activeTextEditor;
    if (editor !== undefined && vscode.workspace.getWorkspaceFolder(editor.document.uri) !== undefined) {
      const selection = rangeOf(editor.selection);
      return { uri: this.server.uri(editor.document.uri), selection: isEmpty(selection) ? undefined : selection };
    }
    const folders = vscode.workspace.workspaceFolders ?? [];
    const folder = folders.length > 1 ? await vscode.window.showWorkspaceFolderPick() : folders[0];
    return folder === undefined ? undefined : { uri: this.server.uri(folder.uri), selection: undefined };
  }
}

/** What is selected in the terminal. There is no other way to it than the clipboard, which is put back. */
async function terminalSelection(): Promise<string> {
  if (vscode.window.activeTerminal === undefined) {
    return "";
  }
  const { clipboard } = vscode.env;
  const before = await clipboard.readText();
  try {
    await clipboard.writeText("");
    await vscode.commands.executeCommand("workbench.action.terminal.copySelection");
    return (await clipboard.readText()).trim();
  } finally {
    await clipboard.writeText(before);
  }
}

function rangeOf({ start, end }: vscode.Range): Range {
  const { line, character } = start;
  return { start: { line, character }, end: { line: end.line, character: end.character } };
}

/** A diagnostic as LSP has it. */
function diagnosticOf(found: vscode.Diagnostic): Record<string, unknown> {
  const code = typeof found.code === "object" ? found.code.value : found.code;
  return {
    range: rangeOf(found.range),
    message: found.message,
    severity: found.severity + 1,
    ...(found.source === undefined ? {} : { source: found.source }),
    ...(code === undefined ? {} : { code }),
    relatedInformation: (found.relatedInformation ?? []).map(({ location, message }) => ({
      location: { uri: location.uri.toString(), range: rangeOf(location.range) },
      message,
    })),
  };
}
