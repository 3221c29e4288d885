import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { firstChangedLine, gist, withHunks } from "../src/core/patch";

/** The hunks that git finds between two texts. */
function hunksOf(before: string, after: string): { oldStart: number; oldLines: number; text: string }[] {
  const folder = mkdtempSync(join(tmpdir(), "frog-patch-"));
  try {
    writeFileSync(join(folder, "a"), before);
    writeFileSync(join(folder, "b"), after);
    let printed = "";
    try {
      execFileSync("git", ["diff", "--no-index", "--no-color", "a", "b"], { cwd: folder, stdio: "pipe" });
    } catch (error) {
      printed = String((error as { stdout: Buffer }).stdout);
    }
    return printed
      .split(/^(?=@@ )/m)
      .slice(1)
      .map((text) => {
        const found = /^@@ -(\d+)(?:,(\d+))? /.exec(text)!;
        return { oldStart: Number(found[1]), oldLines: Number(found[2] ?? 1), text };
      });
  } finally {
    rmSync(folder, { recursive: true });
  }
}

const LINES = Array.from({ length: 40 }, (_, n) => `line ${n}\n`);

function edited(...edits: ((lines: string[]) => void)[]): string {
  const lines = [...LINES];
  edits.forEach((edit) => edit(lines));
  return lines.join("");
}

const third = (lines: string[]): void => void lines.splice(3, 1, "THREE\n");
const thirtieth = (lines: string[]): void => void lines.splice(30, 2);
const first = (lines: string[]): void => void lines.unshift("top\n", "- sign\n", "\\ back\n");

test("all hunks give the other text, as git sees them", () => {
  const before = LINES.join("");
  const pairs: [string, string][] = [
    [before, edited(thirtieth, third, first)],
    ["", "a\nb\n"],
    ["a\nb\n", ""],
    ["a\nb", "a\nb\n"],
    ["a\nb\n", "a\nB"],
    ["a\nb", "a\nc"],
    ["a\r\nb\r\n", "a\r\nc\r\n"],
    ["one", ""],
  ];
  for (const [old, now] of pairs) {
    expect(withHunks(old, hunksOf(old, now))).toBe(now);
  }
});

test("some hunks give what only those edits give", () => {
  const before = LINES.join("");
  const [one, two] = hunksOf(before, edited(thirtieth, third));
  expect(withHunks(before, [one!])).toBe(edited(third));
  expect(withHunks(before, [two!])).toBe(edited(thirtieth));
  expect(withHunks(before, [])).toBe(before);
});

test("where a hunk changes something first, and what", () => {
  const text = "@@ -1,4 +1,4 @@\n a\n b\n-c\n+  d\n e\n";
  expect(firstChangedLine({ newStart: 1, text })).toBe(2);
  expect(gist({ text })).toBe("+ d");
  expect(gist({ text: "@@ -1,2 +1 @@\n a\n-gone\n" })).toBe("- gone");
});
