/** A run as a text to read, with the parts that are folded at first. Pure. */

import { endingWords } from "./endings";
import type { Translate } from "./translate";
import type { Call, Step, Trajectory } from "./trajectory";

/** A part that can be folded; lines count from 0. Thoughts are folded at first. */
export interface Fold {
  readonly start: number;
  readonly end: number;
  readonly isThought: boolean;
}

export interface Transcript {
  readonly text: string;
  readonly folds: readonly Fold[];
}

/** `doing` is what a run that goes on does now. */
export function transcribe(trajectory: Trajectory, t: Translate, doing?: string): Transcript {
  const page = new Page();
  const { model, outcome } = trajectory;
  page.block(`# ${t("Issue")}`, trajectory.issue, false);
  if (model !== undefined) {
    page.line(`${t("Model")}: ${model.name} (${model.kind})`);
  }
  for (const step of trajectory.steps) {
    writeStep(page, step, t);
  }
  page.line("");
  if (outcome !== undefined) {
    page.line(`# ${t("Ended: {0}, after {1} s", endingWords(outcome.exitReason, t), outcome.elapsedS.toFixed(1))}`);
  } else if (doing !== undefined) {
    page.line(`… ${doing}`);
  }
  return page.made();
}

function writeStep(page: Page, step: Step, t: Translate): void {
  page.line("");
  page.line(`# ${t("Step {0}", step.step)}`);
  if (step.thought !== "") {
    page.block(t("thought"), step.thought, true);
  }
  if (step.said !== "") {
    page.block(t("says"), step.said, false);
  }
  step.calls.forEach((call) => page.block(`▸ ${call.name}`, argumentsOf(call), false));
  for (const seen of step.observations) {
    page.block(`◂ ${seen.tool} (${seen.durationS.toFixed(1)} s)`, seen.text, false);
  }
}

function argumentsOf(call: Call): string {
  return Object.entries(call.arguments)
    .map(([name, value]) => {
      const text = typeof value === "string" ? value : JSON.stringify(value);
      return text.includes("\n") ? `${name}:\n${indented(text)}` : `${name}: ${text}`;
    })
    .join("\n");
}

function indented(text: string): string {
  return text
    .replace(/\n$/, "")
    .split("\n")
    .map((line) => `    ${line}`)
    .join("\n");
}

class Page {
  private readonly lines: string[] = [];
  private readonly folds: Fold[] = [];

  line(text: string): void {
    this.lines.push(text);
  }

  /** A head, and a body below it that can be folded. */
  block(head: string, body: string, isThought: boolean): void {
    const start = this.lines.length;
    this.lines.push(head);
    if (body !== "") {
      this.lines.push(...indented(body).split("\n"));
      this.folds.push({ start, end: this.lines.length - 1, isThought });
    }
  }

  made(): Transcript {
    return { text: `${this.lines.join("\n")}\n`, folds: this.folds };
  }
}
