/** Puts a sentence into the user's language; `vscode.l10n.t` in the editor. */
export type Translate = (message: string, ...values: (string | number | boolean)[]) => string;

/** The sentences as they are written. */
export const inEnglish: Translate = (message, ...values) =>
  message.replace(/\{(\d+)\}/g, (_, index: string) => String(values[Number(index)]));
