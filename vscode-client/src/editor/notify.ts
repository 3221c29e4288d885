/** Messages to the user, without links that others wrote. */

import * as vscode from "vscode";
import { withoutLinks } from "../core/plain";

export async function inform(text: string, ...choices: string[]): Promise<string | undefined> {
  return await vscode.window.showInformationMessage(withoutLinks(text), ...choices);
}

export async function warn(text: string, ...choices: string[]): Promise<string | undefined> {
  return await vscode.window.showWarningMessage(withoutLinks(text), ...choices);
}

export async function complain(text: string, ...choices: string[]): Promise<string | undefined> {
  return await vscode.window.showErrorMessage(withoutLinks(text), ...choices);
}

/** Does something; where it fails, the reason is shown. The server's reasons are written for a person. */
export async function attempt<T>(work: () => Promise<T>): Promise<T | undefined> {
  try {
    return await work();
  } catch (error) {
    void complain(reasonOf(error));
    return undefined;
  }
}

export function reasonOf(error: unknown): string {
  const text = error instanceof Error ? error.message : String(error);
  return text.replace(/^frog\.\w+: /, "FrogNano: ");
}
