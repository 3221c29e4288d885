/** A text with some hunks of a diff. Pure. */

import type { ProposedHunk } from "../protocol";

/** The text with these hunks alone. They are in order, and made for this text. */
export function withHunks(before: string, hunks: readonly Pick<ProposedHunk, "oldStart" | "oldLines" | "text">[]): string {
  const old = splitLines(before);
  const made: string[] = [];
  let at = 0;
  for (const hunk of hunks) {
    // Where a hunk takes no line out, its start is the line after which it puts some in.
    const from = hunk.oldLines === 0 ? hunk.oldStart : hunk.oldStart - 1;
    made.push(...old.slice(at, from), ...newLines(hunk.text));
    at = from + hunk.oldLines;
  }
  return [...made, ...old.slice(at)].join("");
}

/** The lines that a hunk leaves, with their ends. */
function newLines(text: string): string[] {
  const lines: string[] = [];
  let sign = "";
  for (const line of splitLines(text).slice(1)) {
    if (line.startsWith("\\")) {
      const last = lines.pop();
      if (last !== undefined) {
        lines.push(sign === "-" ? last : last.slice(0, -1));
      }
      continue;
    }
    sign = line.charAt(0);
    if (sign !== "-") {
      lines.push(line.slice(1));
    }
  }
  return lines;
}

/** The first changed line of a hunk on the side of the proposal, counted from 0. */
export function firstChangedLine(hunk: Pick<ProposedHunk, "newStart" | "text">): number {
  const body = hunk.text.split("\n").slice(1);
  const lead = body.findIndex((line) => line.startsWith("+") || line.startsWith("-"));
  return Math.max(0, hunk.newStart - 1 + Math.max(0, lead));
}

/** The first lines that a hunk changes, for a label. */
export function gist(hunk: Pick<ProposedHunk, "text">): string {
  const changed = hunk.text.split("\n").slice(1);
  const line = changed.find((l) => l.startsWith("+") && l.slice(1).trim() !== "") ?? changed.find((l) => /^[+-]/.test(l));
  return line === undefined ? "" : `${line.charAt(0)} ${line.slice(1).trim()}`;
}

function splitLines(text: string): string[] {
  return text === "" ? [] : text.split(/(?<=\n)/);
}
