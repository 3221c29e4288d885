/** What `frog.doctor` found, in parts and as a page. Pure. */

import type { DoctorResult } from "../protocol";
import type { Translate } from "./translate";

export interface Finding {
  readonly name: string;
  readonly status: "ok" | "warning" | "error" | "note";
  readonly text: string;
}

const LINE = /^([^:]+): (?:(ok|warning|error): )?(.*)$/s;

export function findings(result: DoctorResult): Finding[] {
  return result.lines.map((line) => {
    const parts = LINE.exec(line);
    if (parts === null) {
      return { name: "", status: "note", text: line };
    }
    const text = parts[3] ?? "";
    const status = text.startsWith("no runs") ? "error" : ((parts[2] as Finding["status"] | undefined) ?? "note");
    return { name: parts[1] ?? "", status, text };
  });
}

/** The facts for the status: which model, which jail. */
export function facts(result: DoctorResult): { model: string | undefined; jail: string | undefined } {
  const found = findings(result);
  const text = (name: string): string | undefined => found.find((finding) => finding.name === name)?.text;
  return {
    model: /^\S+(?: \([^)]*\))?/.exec(text("model") ?? "")?.[0].replace(/,$/, ""),
    jail: /backend `([^`]+)`/.exec(text("jail") ?? "")?.[1],
  };
}

const MARKS = { ok: "ok", warning: "warning", error: "error", note: "" };
const MARK_WIDTH = 9;
const LINE_WIDTH = 80;

/** The page, the worst first. */
export function report(result: DoctorResult, t: Translate): string {
  const head = result.ok ? t("A run is possible.") : t("A run is not possible yet.");
  const order = ["error", "warning", "ok", "note"];
  const sorted = findings(result).sort((a, b) => order.indexOf(a.status) - order.indexOf(b.status));
  const lines = sorted.flatMap(({ name, status, text }) => {
    const [first, ...rest] = wrapped(name === "" ? text : `${name}: ${text}`);
    return [MARKS[status].padEnd(MARK_WIDTH) + first, ...rest.map((line) => " ".repeat(MARK_WIDTH) + line)];
  });
  return `${head}\n\n${lines.join("\n")}\n`;
}

/** The words in lines; one that is longer than a line has a line of its own. */
function wrapped(text: string): string[] {
  return text.split(" ").reduce<string[]>(
    (lines, word) => {
      const last = lines.pop() ?? "";
      const isRoom = last === "" || last.length + 1 + word.length <= LINE_WIDTH;
      return isRoom ? [...lines, last === "" ? word : `${last} ${word}`] : [...lines, last, word];
    },
    [""],
  );
}
