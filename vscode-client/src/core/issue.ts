/** What a fix is asked for with. Pure. */

import type { FixParams, Range } from "../protocol";

export interface Here {
  /** The document, or the folder where none is open. */
  readonly uri: string;
  readonly selection: Range | undefined;
}

/** Words of a person, with the open file and what is selected in it. */
export function withWords(here: Here, words: string): FixParams {
  return { uri: here.uri, issue: words, ...(here.selection === undefined ? {} : { range: here.selection }) };
}

export function isEmpty(range: Range): boolean {
  return range.start.line === range.end.line && range.start.character === range.end.character;
}

function before(a: Range["start"], b: Range["start"]): boolean {
  return a.line < b.line || (a.line === b.line && a.character < b.character);
}

/** The diagnostics that touch a range; without any, those on its first line. */
export function diagnosticsAt<D extends { readonly range: Range }>(all: readonly D[], at: Range): D[] {
  const touching = all.filter(({ range }) => !before(range.end, at.start) && !before(at.end, range.start));
  if (touching.length > 0) {
    return touching;
  }
  return all.filter(({ range }) => range.start.line <= at.start.line && at.start.line <= range.end.line);
}
