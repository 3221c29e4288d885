// Writes the server's settings into package.json and package.nls.json:
//   frog-lsp schema settings | node schema.mjs
import { readFileSync, writeFileSync } from "node:fs";

const OF_THE_EXTENSION = ["frog.path", "frog.importStrategy", "frog.interpreter", "frog.trace.server"];
// The extension answers these itself: its user has one thing less to set.
const ANSWERED = ["review.ask", "client.appliesEdits", "trusted"];

const schema = JSON.parse(readFileSync(0, "utf8"));
const manifest = read("package.json");
const texts = read("package.nls.json");
const properties = manifest.contributes.configuration.properties;
const made = Object.fromEntries(OF_THE_EXTENSION.map((key) => [key, properties[key]]));
for (const key of Object.keys(texts).filter((key) => key.startsWith("frog.") && !OF_THE_EXTENSION.some((own) => key.startsWith(own)))) {
  delete texts[key];
}
for (const [name, entry] of Object.entries(schema.properties)) {
  const inner = entry.properties ?? { "": entry };
  for (const [key, { description, ...rest }] of Object.entries(inner)) {
    const setting = key === "" ? name : `${name}.${key}`;
    if (ANSWERED.includes(setting)) {
      continue;
    }
    const id = `frog.${setting}`;
    made[id] = { ...rest, scope: entry["x-userOnly"] ? "machine" : "resource", description: `%${id}%` };
    texts[id] = description;
  }
}
manifest.contributes.configuration.properties = made;
write("package.json", manifest);
write("package.nls.json", texts);

function read(name) {
  return JSON.parse(readFileSync(new URL(name, import.meta.url), "utf8"));
}

function write(name, value) {
  writeFileSync(new URL(name, import.meta.url), `${JSON.stringify(value, undefined, 2)}\n`);
}
