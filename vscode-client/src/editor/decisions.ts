/** What a person does with a proposal: look, apply, discard. */

import * as vscode from "vscode";
import { firstChangedLine } from "../core/patch";
import { placeOf, SCHEME } from "../core/places";
import { hunkAt } from "../core/review";
import { conflicts, outcome, summary } from "../core/words";
import type { ApplyResult, ProposedFile, ProposedHunk } from "../protocol";
import { resolve } from "./conflicts";
import { attempt, inform, warn } from "./notify";
import type { Node, Review } from "./review";
import type { Server } from "./server";
import { viewUri, type Views } from "./views";

/** The part of a proposal that a command is about. */
interface Part {
  readonly runId: string;
  readonly file: ProposedFile;
  readonly hunk: ProposedHunk | undefined;
}

export class Decisions {
  constructor(
    private readonly server: Server,
    private readonly review: Review,
    private readonly views: Views,
  ) {}

  /** A run is over: say so, and ask. Those without a proposal are told of by the server. */
  async announce(runId: string): Promise<void> {
    await this.review.refresh();
    if (!this.review.waiting.some((row) => row.runId === runId)) {
      return;
    }
    const { t } = vscode.l10n;
    const proposal = await this.review.load(runId);
    await this.review.refresh();
    const [look, apply, discard] = [t("Review"), t("Apply"), t("Discard")];
    const chosen = await inform(summary(proposal, t), look, apply, discard);
    if (chosen === look) {
      await this.show(runId);
    } else if (chosen === apply) {
      await this.apply(runId);
    } else if (chosen === discard) {
      await this.discard(runId);
    }
  }

  /** The tree, which has the keyboard then, and the first change of the proposal beside it. */
  async show(given?: unknown): Promise<void> {
    const runId = await this.runOf(given);
    if (runId === undefined) {
      return;
    }
    await attempt(async () => {
      const proposal = await this.review.load(runId);
      await this.review.reveal(runId);
      const open = proposal.files.filter((file) => file.state === "open");
      const first = open.find((file) => file.appliedByDefault) ?? open[0];
      if (first !== undefined) {
        await this.openDiff({ kind: "file", runId, file: first }, true);
      }
    });
  }

  /** VS Code's own diff: what the run saw, what it proposes. */
  async openDiff(given: unknown, preserveFocus = false): Promise<void> {
    const part = this.partOf(given);
    if (part === undefined || this.review.isBusyTicking) {
      return;
    }
    const { runId, file, hunk } = part;
    const { t } = vscode.l10n;
    if (file.before === null && file.after === null) {
      void inform(t("{0} is not text: there is no diff to show.", file.path));
      return;
    }
    const [left, right] = (["before", "proposal"] as const).map((kind) => viewUri({ kind, runId, path: file.path }));
    const options: vscode.TextDocumentShowOptions = { preview: true, preserveFocus };
    const shown = vscode.window.activeTextEditor?.document.uri;
    if (shown?.scheme === SCHEME && placeOf(shown.path)?.kind === "transcript") {
      options.viewColumn = vscode.ViewColumn.One; // a transcript stands at the side, where a diff has no room
    }
    if (hunk !== undefined) {
      const line = firstChangedLine(hunk);
      options.selection = new vscode.Range(line, 0, line, 0);
    }
    await vscode.commands.executeCommand("vscode.diff", left, right, t("{0} (base ↔ proposal)", file.path), options);
  }

  /** Applies what is ticked of a proposal. */
  async apply(given?: unknown): Promise<void> {
    const runId = await this.runOf(given);
    if (runId !== undefined) {
      await attempt(async () => this.tell(runId, await this.review.applyTicked(runId)));
    }
  }

  async discard(given?: unknown): Promise<void> {
    const runId = await this.runOf(given);
    if (runId !== undefined) {
      await attempt(async () => {
        await this.server.send("frog.discard", { runId });
        await this.review.refresh();
      });
    }
  }

  async applyPart(given?: unknown, isHunk = false): Promise<void> {
    const part = this.partOf(given, isHunk);
    if (part === undefined) {
      return;
    }
    const { runId, file, hunk } = part;
    await attempt(async () => {
      const hunks = hunk === undefined ? {} : { hunks: [hunk.number] };
      const result = await this.server.send("frog.apply", { runId, files: [file.path], ...hunks });
      await this.review.refresh();
      this.tell(runId, [result]);
    });
  }

  async discardPart(given?: unknown, isHunk = false): Promise<void> {
    const part = this.partOf(given, isHunk);
    if (part === undefined) {
      return;
    }
    const { runId, file, hunk } = part;
    await attempt(async () => {
      const what = hunk === undefined ? { files: [file.path] } : { hunks: [hunk.number] };
      await this.server.send("frog.discard", { runId, ...what });
      await this.review.refresh();
    });
  }

  async resolveConflict(given?: unknown): Promise<void> {
    const part = this.partOf(given);
    if (part !== undefined) {
      await attempt(() => resolve(this.views, part.runId, part.file));
    }
  }

  private tell(runId: string, results: readonly ApplyResult[]): void {
    const { t } = vscode.l10n;
    const message = outcome(results, t);
    const paths = conflicts(results);
    if (paths.length === 0) {
      void inform(message);
      return;
    }
    const merge = t("Resolve in the Merge Editor");
    void warn(message, merge).then(async (chosen) => {
      for (const path of chosen === merge ? paths : []) {
        const file = this.review.file(runId, path);
        if (file !== undefined) {
          await attempt(() => resolve(this.views, runId, file));
        }
      }
    });
  }

  /** The proposal that a command is about: the one given, the one that is shown, the only one, or one of a list. */
  private async runOf(given: unknown): Promise<string | undefined> {
    if (typeof given === "string") {
      return given;
    }
    const node = given as Node | undefined;
    if (node?.kind === "proposal") {
      return node.row.runId;
    }
    const shown = this.shown();
    if (shown !== undefined) {
      return shown.runId;
    }
    await this.review.refresh();
    const rows = this.review.waiting;
    const { t } = vscode.l10n;
    if (rows.length === 0) {
      void inform(t("There is no proposal."));
      return undefined;
    }
    if (rows.length === 1) {
      return rows[0]?.runId;
    }
    const items = rows.map((row) => ({ label: row.title, description: row.files.join(", "), runId: row.runId }));
    return (await vscode.window.showQuickPick(items, { title: t("Proposals of FrogNano") }))?.runId;
  }

  /** What a command of the tree, or of a diff, is about; with `isHunk` the hunk at the cursor of the diff. */
  private partOf(given: unknown, isHunk = false): Part | undefined {
    const node = given as Node | undefined;
    if (node?.kind === "file" || node?.kind === "hunk") {
      return { runId: node.runId, file: node.file, hunk: node.kind === "hunk" ? node.hunk : undefined };
    }
    const shown = this.shown();
    const file = shown === undefined ? undefined : this.review.file(shown.runId, shown.path);
    if (shown === undefined || file === undefined) {
      return undefined;
    }
    if (!isHunk) {
      return { ...shown, file, hunk: undefined };
    }
    const hunk = hunkAt(file, vscode.window.activeTextEditor?.selection.active.line ?? 0);
    if (hunk === undefined) {
      void inform(vscode.l10n.t("There is no hunk at the cursor."));
      return undefined;
    }
    return { ...shown, file, hunk };
  }

  private shown(): { runId: string; path: string } | undefined {
    const uri = vscode.window.activeTextEditor?.document.uri;
    const place = uri?.scheme === SCHEME ? placeOf(uri.path) : undefined;
    return place?.kind === "proposal" || place?.kind === "before" ? place : undefined;
  }
}
