/**
 * A text for a notification. VS Code makes links of `[label](command:…)` there, and titles, file names and what the
 * model says are written by others: a link of theirs would run a command of the editor. Pure.
 */
export function withoutLinks(text: string): string {
  return text.replace(/\]\(/g, "]\u200b(");
}
