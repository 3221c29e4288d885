/** What is said of proposals, files and hunks. Pure. */

import type { ApplyResult, ProposalResult, ProposedFile, ProposedHunk } from "../protocol";
import { earlyWords } from "./endings";
import { firstChangedLine, gist } from "./patch";
import { isNeverApplied, runsByItself } from "./review";
import type { Translate } from "./translate";

/** Which model made it: every result says so. */
export function maker(proposal: ProposalResult, t: Translate): string {
  const { kind, name, demonstration } = proposal.model;
  if (demonstration) {
    return t("{0}, a demonstration model", name);
  }
  if (kind === "endpoint") {
    return t("{0}, at an endpoint", name);
  }
  return kind === "scripted" ? t("{0}, a script that plays a model", name) : t("{0}, on this machine", name);
}

export function jailWords(proposal: ProposalResult, t: Translate): string {
  const { backend, reduced } = proposal.jail;
  return reduced === null ? t("jail {0}", backend) : t("jail {0}, reduced: {1}", backend, reduced);
}

export function testWords(proposal: ProposalResult, t: Translate): string {
  const { command, before, after } = proposal.tests;
  if (command === null || (before === null && after === null)) {
    return t("tests: not checked");
  }
  const code = (run: typeof before): string =>
    run === null ? t("not run") : run.exitCode === null ? t("timed out") : t("exit code {0}", run.exitCode);
  return t("tests: {0} before, {1} after", code(before), code(after));
}

/** The end of a run that proposes something, in one line. */
export function summary(proposal: ProposalResult, t: Translate): string {
  const n = proposal.files.length;
  const files = n === 1 ? t("1 file") : t("{0} files", n);
  const parts = [t("FrogNano proposes changes in {0} for “{1}”", files, proposal.title), testWords(proposal, t)];
  const early = earlyWords(proposal.exitReason, t);
  if (early !== undefined) {
    parts.push(early);
  }
  const nFlagged = proposal.files.filter((file) => !file.appliedByDefault).length;
  if (nFlagged > 0) {
    parts.push(t("{0} flagged, not ticked", nFlagged));
  }
  parts.push(t("made by {0}", maker(proposal, t)));
  return `${parts.join("; ")}.`;
}

/** How a file looks in a list. `icon` is one of VS Code's. */
export interface Look {
  readonly description: string;
  readonly tooltip: string;
  readonly icon: string;
  readonly color: string | undefined;
}

export function lookOf(file: ProposedFile, t: Translate): Look {
  const warnings = file.flags.map((flag) => flag.why);
  const doing = prospectWords(file, t);
  const from = file.oldPath === null ? [] : [t("from {0}", file.oldPath)];
  const short = runsByItself(file) ? [t("runs by itself")] : isNeverApplied(file) ? [t("never applied")] : [];
  return {
    description: [kindWord(file, t), ...from, ...short, doing].filter((part) => part !== "").join(" · "),
    tooltip: [file.path, kindWord(file, t), doing, file.detail, ...warnings].filter((part) => part !== "").join("\n"),
    ...iconOf(file),
  };
}

function iconOf(file: ProposedFile): Pick<Look, "icon" | "color"> {
  if (file.prospect === "conflict") {
    return { icon: "git-merge", color: "errorForeground" };
  }
  if (!file.appliedByDefault || isNeverApplied(file)) {
    return { icon: "warning", color: "editorWarning.foreground" };
  }
  const icons = {
    created: "diff-added",
    modified: "diff-modified",
    deleted: "diff-removed",
    renamed: "diff-renamed",
    mode: "settings",
    link: "file-symlink-file",
  };
  return { icon: icons[file.kind], color: undefined };
}

function kindWord(file: ProposedFile, t: Translate): string {
  switch (file.kind) {
    case "created":
      return t("new");
    case "modified":
      return t("changed");
    case "deleted":
      return t("deleted");
    case "renamed":
      return t("renamed");
    case "mode":
      return t("other mode");
    case "link":
      return t("link");
  }
}

function prospectWords(file: ProposedFile, t: Translate): string {
  if (file.state !== "open") {
    return file.state === "applied" ? t("in place") : t("discarded");
  }
  switch (file.prospect) {
    case "merged":
      return t("merges with your edits");
    case "conflict":
      return t("conflict");
    case "in-place":
      return t("in place");
    case "by-hand":
      return t("by hand");
    default:
      return "";
  }
}

export function hunkLabel(hunk: ProposedHunk, t: Translate): string {
  return t("Hunk {0}, line {1}", hunk.number, firstChangedLine(hunk) + 1);
}

export function hunkDescription(hunk: ProposedHunk, t: Translate): string {
  const state = hunk.state === "open" ? "" : hunk.state === "applied" ? t("in place") : t("discarded");
  return state === "" ? gist(hunk) : state;
}

/** What several answers of `frog.apply` say together. */
export function outcome(results: readonly ApplyResult[], t: Translate): string {
  return results.length === 0 ? t("Nothing is ticked.") : results.map((result) => result.message).join(" ");
}

/** The files in which nothing was applied since both sides changed the same lines. */
export function conflicts(results: readonly ApplyResult[]): string[] {
  return results.flatMap((result) => result.files.filter((f) => f.outcome === "conflict").map((f) => f.path));
}
