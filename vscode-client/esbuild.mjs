// Bundles the extension: node esbuild.mjs [FOLDER]
// Two files: what starts with the editor, and the client of the protocol, loaded when a server is started.
import { join } from "node:path";
import { build } from "esbuild";

const CLIENT = "./client";
const clientStaysApart = {
  name: "the client stays apart",
  setup: ({ onResolve }) => {
    onResolve({ filter: /^\.\/client$/ }, ({ importer }) =>
      importer.endsWith(join("src", "editor", "server.ts")) ? { path: CLIENT, external: true } : undefined,
    );
  },
};

await build({
  entryPoints: { extension: "src/extension.ts", client: "src/editor/client.ts" },
  outdir: process.argv[2] ?? "dist",
  bundle: true,
  platform: "node",
  format: "cjs",
  target: "node20",
  external: ["vscode"],
  plugins: [clientStaysApart],
  // A real import() of Node would pass by the editor's own require, which knows "vscode".
  supported: { "dynamic-import": false },
  minify: true,
  legalComments: "none",
  logLevel: "warning",
});
