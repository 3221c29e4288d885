/** The proposals that wait and the runs that go on, as a tree with boxes to tick. */

import * as vscode from "vscode";
import type { Run } from "../core/runs";
import { earlyWords } from "../core/endings";
import * as review from "../core/review";
import { hunkDescription, hunkLabel, jailWords, lookOf, maker, testWords } from "../core/words";
import type { ApplyResult, ProposalResult, ProposedFile, ProposedHunk, RunRow } from "../protocol";
import { attempt } from "./notify";
import type { Server } from "./server";
import type { Views } from "./views";

export type Node =
  | { readonly kind: "run"; readonly run: Run }
  | { readonly kind: "proposal"; readonly row: RunRow }
  | { readonly kind: "file"; readonly runId: string; readonly file: ProposedFile }
  | { readonly kind: "hunk"; readonly runId: string; readonly file: ProposedFile; readonly hunk: ProposedHunk };

const WAITING: readonly string[] = ["proposed", "partly-applied", "conflict"];
const CHANGES_WAIT_MS = 400;
/** In which the row that the keyboard is on is selected, which would open its diff. */
const SELECT_MS = 300;

export class Review implements vscode.TreeDataProvider<Node>, vscode.Disposable {
  private readonly changed = new vscode.EventEmitter<Node | undefined>();
  private readonly view: vscode.TreeView<Node>;
  private readonly listeners: vscode.Disposable;
  private readonly proposals = new Map<string, ProposalResult>();
  private readonly ticks = new Map<string, review.Ticks>();
  private rows: readonly RunRow[] = [];
  private timer: NodeJS.Timeout | undefined;
  private isTicking = false;
  readonly onDidChangeTreeData = this.changed.event;

  constructor(
    private readonly server: Server,
    private readonly views: Views,
  ) {
    this.view = vscode.window.createTreeView<Node>("frogLsp.proposals", {
      treeDataProvider: this,
      manageCheckboxStateManually: true,
      showCollapseAll: true,
    });
    this.listeners = vscode.Disposable.from(
      this.view,
      this.view.onDidChangeCheckboxState(({ items }) => items.forEach(([node, state]) => this.tick(node, state))),
      server.onChanged(() => void this.refresh()),
      server.onAdvanced(() => this.changed.fire(undefined)),
      // What applying would do depends on the texts of now.
      vscode.workspace.onDidChangeTextDocument(({ document }) => {
        if (document.uri.scheme === "file" && this.proposals.size > 0) {
          clearTimeout(this.timer);
          this.timer = setTimeout(() => void this.refresh(), CHANGES_WAIT_MS);
        }
      }),
    );
  }

  dispose(): void {
    clearTimeout(this.timer);
    this.listeners.dispose();
    this.changed.dispose();
  }

  get waiting(): readonly RunRow[] {
    return this.rows;
  }

  /** Asks the server for all that waits, and what has become of the proposals that were looked at. */
  async refresh(): Promise<void> {
    if (this.server.state !== "running") {
      this.rows = [];
    } else {
      const rows = await this.server.send("frog.runs", {}).catch(() => []);
      this.rows = rows.filter((row) => WAITING.includes(row.state)).reverse();
      await Promise.all(this.rows.filter((row) => this.proposals.has(row.runId)).map((row) => this.load(row.runId)));
    }
    const n = this.rows.length;
    this.view.badge = n === 0 ? undefined : { value: n, tooltip: vscode.l10n.t("{0} waiting for you", n) };
    this.changed.fire(undefined);
  }

  /** A proposal as it is now. Rejects where there is none any more. */
  async load(runId: string): Promise<ProposalResult> {
    const proposal = await this.server.send("frog.proposal", { runId });
    const ticks = this.ticks.get(runId);
    this.proposals.set(runId, proposal);
    this.ticks.set(runId, ticks === undefined ? review.firstTicks(proposal) : review.keptTicks(proposal, ticks));
    this.views.takeProposal(proposal);
    return proposal;
  }

  async reveal(runId: string): Promise<void> {
    await this.refresh();
    const row = this.rows.find((other) => other.runId === runId);
    if (row !== undefined) {
      await this.view.reveal({ kind: "proposal", row }, { expand: true, focus: true, select: true });
    }
  }

  /** Applies what is ticked. */
  async applyTicked(runId: string): Promise<ApplyResult[]> {
    const proposal = this.proposals.get(runId) ?? (await this.load(runId));
    const results: ApplyResult[] = [];
    for (const params of review.applications(proposal, this.ticks.get(runId) ?? review.firstTicks(proposal))) {
      results.push(await this.server.send("frog.apply", params));
    }
    await this.refresh();
    return results;
  }

  /** Ticks or unticks the row that the keyboard is on: VS Code has no key for the box of a row. */
  async toggle(): Promise<void> {
    if (this.isTicking) {
      return;
    }
    this.isTicking = true;
    try {
      await vscode.commands.executeCommand("list.selectAndPreserveFocus");
      await new Promise((resolve) => setTimeout(resolve, SELECT_MS));
    } finally {
      this.isTicking = false;
    }
    const [node] = this.view.selection;
    const box = node === undefined ? undefined : this.getTreeItem(node).checkboxState;
    if (node !== undefined && typeof box === "object") {
      const { Checked, Unchecked } = vscode.TreeItemCheckboxState;
      this.tick(node, box.state === Checked ? Unchecked : Checked);
    }
  }

  /** Whether a row is selected for its box alone. */
  get isBusyTicking(): boolean {
    return this.isTicking;
  }

  file(runId: string, path: string): ProposedFile | undefined {
    return this.proposals.get(runId)?.files.find((file) => file.path === path);
  }

  // --- the tree -----------------------------------------------------------------------------------------------

  async getChildren(node?: Node): Promise<Node[]> {
    switch (node?.kind) {
      case undefined: {
        const runs = this.server.runs.map((run): Node => ({ kind: "run", run }));
        return [...runs, ...this.rows.map((row): Node => ({ kind: "proposal", row }))];
      }
      case "proposal": {
        const { runId } = node.row;
        const proposal = this.proposals.get(runId) ?? (await attempt(() => this.load(runId)));
        return (proposal?.files ?? []).map((file): Node => ({ kind: "file", runId, file }));
      }
      case "file": {
        const { runId, file } = node;
        return file.kind === "modified" ? file.hunks.map((hunk): Node => ({ kind: "hunk", runId, file, hunk })) : [];
      }
      default:
        return [];
    }
  }

  getParent(node: Node): Node | undefined {
    const row = (runId: string): Node | undefined => {
      const found = this.rows.find((other) => other.runId === runId);
      return found === undefined ? undefined : { kind: "proposal", row: found };
    };
    switch (node.kind) {
      case "file":
        return row(node.runId);
      case "hunk":
        return { kind: "file", runId: node.runId, file: node.file };
      default:
        return undefined;
    }
  }

  getTreeItem(node: Node): vscode.TreeItem {
    switch (node.kind) {
      case "run":
        return this.runItem(node.run);
      case "proposal":
        return this.proposalItem(node.row);
      case "file":
        return this.fileItem(node);
      case "hunk":
        return this.hunkItem(node);
    }
  }

  private runItem(run: Run): vscode.TreeItem {
    const item = new vscode.TreeItem(run.title);
    item.id = run.runId;
    item.description = run.doing;
    item.iconPath = new vscode.ThemeIcon("loading~spin");
    item.contextValue = "run";
    item.command = { command: "frogLsp.showTranscript", title: vscode.l10n.t("Transcript"), arguments: [run.runId] };
    return item;
  }

  private proposalItem(row: RunRow): vscode.TreeItem {
    const { t } = vscode.l10n;
    const item = new vscode.TreeItem(row.title, vscode.TreeItemCollapsibleState.Expanded);
    const proposal = this.proposals.get(row.runId);
    item.id = row.runId;
    item.iconPath = new vscode.ThemeIcon("lightbulb");
    item.contextValue = "proposal";
    if (proposal !== undefined) {
      const facts = [t("made by {0}", maker(proposal, t)), testWords(proposal, t), jailWords(proposal, t)];
      item.description = facts.slice(0, 2).join(" · ");
      const early = earlyWords(proposal.exitReason, t);
      if (early !== undefined) {
        facts.push(early);
      }
      item.tooltip = [row.title, ...facts, proposal.finalMessage, ...proposal.notes].filter((s) => s !== "").join("\n");
      item.accessibilityInformation = { label: [row.title, ...facts].join(", ") };
    }
    return item;
  }

  private fileItem({ runId, file }: Node & { kind: "file" }): vscode.TreeItem {
    const { t } = vscode.l10n;
    const hasHunks = file.kind === "modified" && file.hunks.length > 0;
    const item = new vscode.TreeItem(
      file.path,
      hasHunks ? vscode.TreeItemCollapsibleState.Collapsed : vscode.TreeItemCollapsibleState.None,
    );
    const look = lookOf(file, t);
    item.id = `${runId} ${file.path}`;
    item.description = look.description;
    item.tooltip = look.tooltip;
    item.iconPath = new vscode.ThemeIcon(look.icon, look.color === undefined ? undefined : new vscode.ThemeColor(look.color));
    item.contextValue = !review.isOpen(file) ? "file.settled" : file.prospect === "conflict" ? "file.conflict" : "file.open";
    item.command = { command: "frogLsp.openDiff", title: t("Show the Change"), arguments: [{ kind: "file", runId, file }] };
    item.accessibilityInformation = { label: `${file.path}, ${look.description}` };
    if (review.isOpen(file)) {
      item.checkboxState = this.box(review.isFileTicked(file, this.ticksOf(runId)), file.path);
    }
    return item;
  }

  private hunkItem(node: Node & { kind: "hunk" }): vscode.TreeItem {
    const { t } = vscode.l10n;
    const { runId, file, hunk } = node;
    const item = new vscode.TreeItem(hunkLabel(hunk, t));
    item.id = `${runId} ${file.path} ${hunk.number}`;
    item.description = hunkDescription(hunk, t);
    item.tooltip = hunk.text;
    item.command = { command: "frogLsp.openDiff", title: t("Show the Change"), arguments: [node] };
    item.contextValue = review.isOpen(file) && hunk.state === "open" ? "hunk.open" : "hunk.settled";
    item.accessibilityInformation = { label: `${hunkLabel(hunk, t)}, ${hunkDescription(hunk, t)}` };
    if (item.contextValue === "hunk.open") {
      item.checkboxState = this.box(this.ticksOf(runId).hunks.has(hunk.number), hunkLabel(hunk, t));
    }
    return item;
  }

  private box(isTicked: boolean, what: string): vscode.TreeItem["checkboxState"] & object {
    const { Checked, Unchecked } = vscode.TreeItemCheckboxState;
    const label = vscode.l10n.t("Apply {0}", what);
    return { state: isTicked ? Checked : Unchecked, tooltip: label, accessibilityInformation: { label } };
  }

  private ticksOf(runId: string): review.Ticks {
    return this.ticks.get(runId) ?? { hunks: new Set(), files: new Set() };
  }

  private tick(node: Node, state: vscode.TreeItemCheckboxState): void {
    const isTicked = state === vscode.TreeItemCheckboxState.Checked;
    if (node.kind === "file") {
      this.ticks.set(node.runId, review.tickFile(node.file, this.ticksOf(node.runId), isTicked));
    } else if (node.kind === "hunk") {
      this.ticks.set(node.runId, review.tickHunk(node.hunk.number, this.ticksOf(node.runId), isTicked));
    }
    this.changed.fire(undefined);
  }
}
