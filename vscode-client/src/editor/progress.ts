/** A notification for each run, with its steps and a button that cancels it. */

import * as vscode from "vscode";
import { withoutLinks } from "../core/plain";
import type { Run } from "../core/runs";
import type { Server } from "./server";

interface Shown {
  report(message: string): void;
  end(): void;
}

export function showProgress(server: Server): vscode.Disposable {
  const shown = new Map<string, Shown>();
  return vscode.Disposable.from(
    server.onAdvanced((run) => {
      const notification = shown.get(run.runId) ?? open(server, run);
      shown.set(run.runId, notification);
      notification.report(run.doing);
    }),
    server.onEnded((runId) => {
      shown.get(runId)?.end();
      shown.delete(runId);
    }),
  );
}

function open(server: Server, run: Run): Shown {
  let report: (message: string) => void = () => undefined;
  let end: () => void = () => undefined;
  const isOver = new Promise<void>((resolve) => {
    end = resolve;
  });
  const link = `command:frogLsp.showTranscript?${encodeURIComponent(JSON.stringify([run.runId]))}`;
  void vscode.window.withProgress(
    {
      location: vscode.ProgressLocation.Notification,
      title: withoutLinks(`FrogNano: ${run.title}`),
      cancellable: true,
    },
    async (progress, token) => {
      token.onCancellationRequested(() => void server.cancel(run.runId));
      report = (message) =>
        progress.report({ message: `${withoutLinks(message)} · [${vscode.l10n.t("Transcript")}](${link})` });
      report(run.doing);
      await isOver;
    },
  );
  return { report: (message) => report(message), end: () => end() };
}
