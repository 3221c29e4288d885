/** A file that both sides changed, in the merge editor. */

import * as vscode from "vscode";
import { withoutLinks } from "../core/plain";
import type { ProposedFile } from "../protocol";
import { viewUri, type Views } from "./views";

/** Opens the three sides; the file itself is the result. Without a merge editor: your text beside the conflict. */
export async function resolve(views: Views, runId: string, file: ProposedFile): Promise<void> {
  if (file.uri === null) {
    return;
  }
  const { t } = vscode.l10n;
  const output = vscode.Uri.parse(file.uri);
  const now = await vscode.workspace.openTextDocument(output);
  const yours = views.put({ kind: "yours", runId, path: file.path }, now.getText());
  const proposal = viewUri({ kind: "proposal", runId, path: file.path });
  async function showDiff(): Promise<void> {
    const block = views.put({ kind: "conflict", runId, path: `${file.path}.txt` }, file.conflict ?? "");
    await vscode.commands.executeCommand("vscode.diff", yours, proposal, t("{0} (yours ↔ proposal)", file.path));
    await vscode.window.showTextDocument(block, { viewColumn: vscode.ViewColumn.Beside, preview: false });
  }
  if (now.isDirty) {
    const [merge, diff] = [t("Save and Merge"), t("Show a Diff")];
    const text = t("The merge editor saves {0} as it is now. A diff saves nothing.", file.path);
    const chosen = await vscode.window.showWarningMessage(withoutLinks(text), { modal: true }, merge, diff);
    if (chosen !== merge) {
      await (chosen === diff ? showDiff() : undefined);
      return;
    }
  }
  try {
    // What VS Code's own git extension calls; it is not in the public API, so it may be gone one day.
    await vscode.commands.executeCommand("_open.mergeEditor", {
      base: viewUri({ kind: "before", runId, path: file.path }),
      input1: { uri: yours, title: t("Yours"), description: t("the file now") },
      input2: { uri: proposal, title: t("Proposal"), description: "FrogNano" },
      output,
    });
  } catch {
    await showDiff();
  }
}
