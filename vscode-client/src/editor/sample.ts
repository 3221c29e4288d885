/** The sample of the walkthrough: a small broken project with its issue, in a window of its own. */

import { execFile } from "node:child_process";
import * as fs from "node:fs/promises";
import * as path from "node:path";
import { promisify } from "node:util";
import * as vscode from "vscode";
import { attempt } from "./notify";

const WRITE_TIMEOUT_MS = 20_000;

export async function openSample(program: string, storage: string): Promise<void> {
  await attempt(async () => {
    const folder = path.join(storage, "sample");
    await fs.rm(folder, { recursive: true, force: true });
    const command = ["demo", "--write", folder, "--json"];
    const { stdout } = await promisify(execFile)(program, command, { cwd: storage, timeout: WRITE_TIMEOUT_MS });
    const { test_command: test } = JSON.parse(stdout) as { test_command: string };
    await fs.mkdir(path.join(folder, ".vscode"));
    const settings = { "frog.tests.command": test };
    await fs.writeFile(path.join(folder, ".vscode", "settings.json"), `${JSON.stringify(settings, undefined, 2)}\n`);
    await vscode.commands.executeCommand("vscode.openFolder", vscode.Uri.file(folder), { forceNewWindow: true });
  });
}
