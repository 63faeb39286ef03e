// What a bundler of JavaScript does: node bundle.js FOLDER bundles FOLDER/main.js by the rollup in PATH, leaves out what is not used,
// and prints a digest of the bundle.
"use strict";
const crypto = require("crypto");
const fs = require("fs");
const path = require("path");

function rollup() {
  for (const folder of process.env.PATH.split(path.delimiter)) {
    const command = path.join(folder, "rollup");
    if (fs.existsSync(command)) {
      return require(path.resolve(fs.realpathSync(command), "../../rollup.js"));   // beside dist/bin/rollup
    }
  }
  throw new Error("rollup is not in PATH");
}

async function main() {
  if (process.argv.length !== 3) {
    console.error("usage: node bundle.js FOLDER");
    process.exit(2);
  }
  const bundle = await rollup().rollup({ input: path.join(process.argv[2], "main.js"), onwarn: (warning) => { throw new Error(warning.message); } });
  const { output } = await bundle.generate({ format: "iife", name: "application", sourcemap: true, sourcemapPathTransform: (name) => path.basename(name) });
  await bundle.close();
  const digest = crypto.createHash("sha256").update(output[0].code).update(output[0].map.toString()).digest("hex");
  console.log(`bundle.js bytes=${output[0].code.length} check=${digest.slice(0, 16)}`);
}

main().catch((error) => { console.error(error.message); process.exit(1); });
