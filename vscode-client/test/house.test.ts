import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";

const ROOT = join(import.meta.dirname, "..");

function sources(folder: string): { name: string; text: string }[] {
  return readdirSync(join(ROOT, folder), { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(".ts"))
    .map((name) => ({ name, text: readFileSync(join(ROOT, folder, name), "utf8") }));
}

test("only the editor's side knows the editor", () => {
  for (const { name, text } of sources("src/core")) {
    expect(text, name).not.toMatch(/from "(vscode|\.\.\/editor)/);
    expect(text, name).not.toMatch(/from "node:(?!path")/);
  }
});

test("nothing speaks to the network", () => {
  for (const { name, text } of sources("src")) {
    expect(text, name).not.toMatch(/node:(https?|net|tls|dgram)|\bfetch\(|XMLHttpRequest|TelemetryLogger/);
  }
});

test("every sentence is there in Korean, with the same places for values", () => {
  const korean = JSON.parse(readFileSync(join(ROOT, "l10n/bundle.l10n.ko.json"), "utf8")) as { [key: string]: string };
  const said = sources("src").flatMap(({ text }) =>
    [...text.matchAll(/\bt\(\s*("(?:[^"\\]|\\.)*")/g)].map((found) => JSON.parse(found[1]!) as string),
  );
  expect(said.length).toBeGreaterThan(80);
  expect(Object.keys(korean).sort()).toEqual([...new Set(said)].sort());
  const places = (text: string): string[] => [...text.matchAll(/\{\d\}/g)].map(String).sort();
  for (const [english, other] of Object.entries(korean)) {
    expect(places(other), english).toEqual(places(english));
  }
});
