/** Our read-only documents: both sides of a proposal, transcripts, the page of the doctor. */

import * as fs from "node:fs/promises";
import * as vscode from "vscode";
import { pathOf, placeOf, SCHEME, type Place } from "../core/places";
import { withHunks } from "../core/patch";
import { readTrajectory } from "../core/trajectory";
import { transcribe, type Fold } from "../core/transcript";
import type { ProposalResult, ProposedFile } from "../protocol";
import type { Server } from "./server";

const POLL_MS = 500;
/** From our answer to the moment when the editor has it; on a busy machine it takes several. */
const FOLD_WAIT_MS = 300;
const FOLD_TRIES = 10;

export function viewUri(place: Place): vscode.Uri {
  return vscode.Uri.from({ scheme: SCHEME, path: pathOf(place) });
}

/** Holds what cannot be asked for again, and reads the rest when it is shown. */
export class Views implements vscode.TextDocumentContentProvider, vscode.FoldingRangeProvider, vscode.Disposable {
  private readonly changed = new vscode.EventEmitter<vscode.Uri>();
  private readonly foldsChanged = new vscode.EventEmitter<void>();
  private readonly pages = new Map<string, string>();
  private readonly folds = new Map<string, readonly Fold[]>();
  private readonly folded = new Map<string, ReadonlySet<number>>();
  private readonly sizes = new Map<string, string>();
  private readonly nLines = new Map<string, number>();
  private readonly registered: vscode.Disposable;
  private readonly timer: NodeJS.Timeout;
  readonly onDidChange = this.changed.event;
  readonly onDidChangeFoldingRanges = this.foldsChanged.event;

  constructor(private readonly server: Server) {
    this.timer = setInterval(() => void this.look(), POLL_MS);
    this.registered = vscode.Disposable.from(
      vscode.workspace.registerTextDocumentContentProvider(SCHEME, this),
      vscode.languages.registerFoldingRangeProvider({ scheme: SCHEME, pattern: "/transcript/**" }, this),
      vscode.workspace.onDidCloseTextDocument(({ uri }) => {
        this.folded.delete(uri.path);
        this.nLines.delete(uri.path);
      }),
      vscode.workspace.onDidChangeTextDocument(({ document }) => this.follow(document)),
      server.onEnded((runId) => this.changed.fire(viewUri({ kind: "transcript", runId, path: "transcript.txt" }))),
    );
  }

  dispose(): void {
    clearInterval(this.timer);
    this.registered.dispose();
    this.changed.dispose();
    this.foldsChanged.dispose();
  }

  /** Keeps both sides of the files of a proposal. */
  takeProposal(proposal: ProposalResult): void {
    for (const file of proposal.files) {
      this.put({ kind: "before", runId: proposal.runId, path: file.path }, file.before ?? "");
      this.put({ kind: "proposal", runId: proposal.runId, path: file.path }, proposedText(file));
    }
  }

  put(place: Place, text: string): vscode.Uri {
    const uri = viewUri(place);
    if (this.pages.get(uri.path) !== text) {
      this.pages.set(uri.path, text);
      this.changed.fire(uri);
    }
    return uri;
  }

  async provideTextDocumentContent(uri: vscode.Uri): Promise<string> {
    const place = placeOf(uri.path);
    return place?.kind === "transcript" ? await this.transcript(uri, place.runId) : (this.pages.get(uri.path) ?? "");
  }

  provideFoldingRanges(document: vscode.TextDocument): vscode.FoldingRange[] {
    const folds = this.folds.get(document.uri.path) ?? [];
    setTimeout(() => void this.foldThoughts(document), FOLD_WAIT_MS);
    return folds.map(({ start, end }) => new vscode.FoldingRange(start, end, vscode.FoldingRangeKind.Region));
  }

  async showTranscript(runId: string): Promise<void> {
    const uri = viewUri({ kind: "transcript", runId, path: "transcript.txt" });
    const document = await vscode.workspace.openTextDocument(uri);
    await vscode.window.showTextDocument(document, { preview: false, viewColumn: vscode.ViewColumn.Beside });
  }

  /** Folds each thought once: a person who unfolds one finds it unfolded. */
  private async foldThoughts(document: vscode.TextDocument): Promise<void> {
    if (vscode.window.activeTextEditor?.document !== document) {
      return; // the command folds in the editor that has the focus
    }
    const { path } = document.uri;
    const done = this.folded.get(path) ?? new Set();
    const thoughts = (this.folds.get(path) ?? []).filter((fold) => fold.isThought).map((fold) => fold.start);
    const fresh = thoughts.filter((line) => !done.has(line));
    this.folded.set(path, new Set([...done, ...fresh]));
    const isSeen = (line: number): boolean =>
      vscode.window.activeTextEditor?.document === document &&
      vscode.window.activeTextEditor.visibleRanges.some((range) => range.contains(new vscode.Position(line + 1, 0)));
    for (let tries = 0; fresh.length > 0 && tries < FOLD_TRIES && (tries === 0 || fresh.some(isSeen)); tries++) {
      await vscode.commands.executeCommand("editor.fold", { selectionLines: fresh, levels: 1 });
      await new Promise((resolve) => setTimeout(resolve, FOLD_WAIT_MS));
    }
  }

  /** Goes on with a transcript that grows, as long as its end is what is looked at. */
  private follow(document: vscode.TextDocument): void {
    if (document.uri.scheme !== SCHEME || placeOf(document.uri.path)?.kind !== "transcript") {
      return;
    }
    const before = this.nLines.get(document.uri.path) ?? 0;
    this.nLines.set(document.uri.path, document.lineCount);
    for (const editor of vscode.window.visibleTextEditors.filter((other) => other.document === document)) {
      const lastSeen = editor.visibleRanges.at(-1)?.end.line ?? 0;
      if (lastSeen >= before - 2) {
        const end = new vscode.Position(document.lineCount - 1, 0);
        editor.revealRange(new vscode.Range(end, end));
      }
    }
  }

  private async transcript(uri: vscode.Uri, runId: string): Promise<string> {
    const { t } = vscode.l10n;
    const doing = this.server.run(runId)?.doing;
    const path = await this.trajectoryPath(runId);
    if (path === undefined) {
      return `${t("The run has not begun yet.")}${doing === undefined ? "" : `\n\n… ${doing}`}\n`;
    }
    const made = transcribe(readTrajectory(await fs.readFile(path, "utf8")), t, doing);
    this.folds.set(uri.path, made.folds);
    this.foldsChanged.fire();
    return made.text;
  }

  private async trajectoryPath(runId: string): Promise<string | undefined> {
    try {
      return (await this.server.send("frog.log", { runId, show: false })).path ?? undefined;
    } catch {
      return undefined;
    }
  }

  /** Renders again the transcripts that are open, where the run has gone on. */
  private async look(): Promise<void> {
    for (const document of vscode.workspace.textDocuments) {
      const place = document.uri.scheme === SCHEME ? placeOf(document.uri.path) : undefined;
      const run = place?.kind === "transcript" ? this.server.run(place.runId) : undefined;
      if (run === undefined || place === undefined) {
        continue;
      }
      const path = await this.trajectoryPath(place.runId);
      const size = path === undefined ? 0 : await fs.stat(path).then((found) => found.size, () => 0);
      const seen = `${size} ${run.doing}`;
      if (this.sizes.get(place.runId) !== seen) {
        this.sizes.set(place.runId, seen);
        this.changed.fire(document.uri);
      }
    }
  }
}

/** What the proposal makes of the file, less the hunks that were discarded. */
function proposedText(file: ProposedFile): string {
  const kept = file.hunks.filter((hunk) => hunk.state !== "discarded");
  if (file.kind !== "modified" || file.before === null || kept.length === file.hunks.length) {
    return file.after ?? "";
  }
  return withHunks(file.before, kept);
}
