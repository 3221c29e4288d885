/** A review: what of a proposal is ticked, and what Apply sends. Pure. */

import type { ApplyParams, ProposalResult, ProposedFile, ProposedHunk } from "../protocol";

/** The parts that are ticked: hunks by number, files without hunks of their own by path. */
export interface Ticks {
  readonly hunks: ReadonlySet<number>;
  readonly files: ReadonlySet<string>;
}

/** Whether a person may still decide about a file. */
export function isOpen(file: ProposedFile): boolean {
  return file.state === "open" && !isNeverApplied(file);
}

export function isNeverApplied(file: ProposedFile): boolean {
  return file.flags.some((flag) => flag.level === "never");
}

/** Whether a flag says that the file runs by itself. */
export function runsByItself(file: ProposedFile): boolean {
  return file.flags.some((flag) => flag.level === "runs");
}

/** The hunks that are decided one by one: only text that was there before has such. */
export function ownHunks(file: ProposedFile): readonly ProposedHunk[] {
  return file.kind === "modified" ? file.hunks.filter((hunk) => hunk.state === "open") : [];
}

/** What is ticked at first: what the server applies by default, less what is in place already. */
export function firstTicks(proposal: ProposalResult): Ticks {
  return tickedWhere(proposal, (file) => file.appliedByDefault && file.prospect !== "in-place");
}

/** The ticks after the proposal changed: those of what is still open stay. */
export function keptTicks(proposal: ProposalResult, ticks: Ticks): Ticks {
  const all = tickedWhere(proposal, () => true);
  return {
    hunks: new Set([...ticks.hunks].filter((number) => all.hunks.has(number))),
    files: new Set([...ticks.files].filter((path) => all.files.has(path))),
  };
}

function tickedWhere(proposal: ProposalResult, isTicked: (file: ProposedFile) => boolean): Ticks {
  const open = proposal.files.filter((file) => isOpen(file) && isTicked(file));
  return {
    hunks: new Set(open.flatMap((file) => ownHunks(file).map((hunk) => hunk.number))),
    files: new Set(open.filter((file) => ownHunks(file).length === 0).map((file) => file.path)),
  };
}

/** A file counts as ticked when all that is open of it is. */
export function isFileTicked(file: ProposedFile, ticks: Ticks): boolean {
  const hunks = ownHunks(file);
  return hunks.length === 0 ? ticks.files.has(file.path) : hunks.every((hunk) => ticks.hunks.has(hunk.number));
}

export function tickFile(file: ProposedFile, ticks: Ticks, isTicked: boolean): Ticks {
  const hunks = ownHunks(file);
  if (hunks.length === 0) {
    return { hunks: ticks.hunks, files: changed(ticks.files, file.path, isTicked) };
  }
  return hunks.reduce((made, hunk) => tickHunk(hunk.number, made, isTicked), ticks);
}

export function tickHunk(number: number, ticks: Ticks, isTicked: boolean): Ticks {
  return { hunks: changed(ticks.hunks, number, isTicked), files: ticks.files };
}

function changed<T>(set: ReadonlySet<T>, item: T, isIn: boolean): ReadonlySet<T> {
  const made = new Set(set);
  if (isIn) {
    made.add(item);
  } else {
    made.delete(item);
  }
  return made;
}

/**
 * What Apply sends for the ticks, in order. Whole files go in one message; hunks of files that go in part in another,
 * since the server takes what lies both in the files and in the hunks. Files are always named: it is the person who
 * ticked them.
 */
export function applications(proposal: ProposalResult, ticks: Ticks): ApplyParams[] {
  const { runId } = proposal;
  const open = proposal.files.filter(isOpen);
  const whole = open.filter((file) => isFileTicked(file, ticks) && !isPartlyDecided(file));
  const parts = open.filter((file) => !whole.includes(file));
  const hunks = parts.flatMap((file) => ownHunks(file).map((h) => h.number)).filter((n) => ticks.hunks.has(n));
  const owners = parts.filter((file) => ownHunks(file).some((hunk) => ticks.hunks.has(hunk.number)));
  return [
    ...(whole.length > 0 ? [{ runId, files: whole.map((file) => file.path) }] : []),
    ...(hunks.length > 0 ? [{ runId, files: owners.map((file) => file.path), hunks }] : []),
  ];
}

function isPartlyDecided(file: ProposedFile): boolean {
  return file.kind === "modified" && file.hunks.some((hunk) => hunk.state !== "open");
}

/** The hunk of a file at a line of the proposed text (counted from 0), undefined where there is none. */
export function hunkAt(file: ProposedFile, line: number): ProposedHunk | undefined {
  return file.hunks.find((hunk) => line >= hunk.newStart - 1 && line < hunk.newStart - 1 + Math.max(1, hunk.newLines));
}
