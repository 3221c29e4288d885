// Bundles the extension: node esbuild.mjs [OUTFILE]
import { build } from "esbuild";

await build({
  entryPoints: ["src/extension.ts"],
  outfile: process.argv[2] ?? "dist/extension.js",
  bundle: true,
  platform: "node",
  format: "cjs",
  target: "node20",
  external: ["vscode"],
  minify: true,
  legalComments: "none",
  logLevel: "warning",
});
