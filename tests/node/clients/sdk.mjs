// An agent of the TypeScript SDK: starts a server and makes the calls of a plan, in order.
//
//   node sdk.mjs PLAN.json        PLAN: {command, args, env, calls: [{tool, arguments}]}
//
// Prints one JSON line per answer.
import fs from 'node:fs';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';

const plan = JSON.parse(fs.readFileSync(process.argv[2], 'utf8'));
const client = new Client({ name: 'kams-tests-ts', version: '1.0.0' }, { capabilities: {} });
await client.connect(
  new StdioClientTransport({ command: plan.command, args: plan.args, env: { ...process.env, ...plan.env } }),
);
await client.listTools();
for (const { tool, arguments: args } of plan.calls) {
  let answer;
  try {
    answer = await client.callTool({ name: tool, arguments: args });
  } catch (error) {
    answer = { error: { code: error.code, message: error.message } };
  }
  console.log(JSON.stringify(answer));
}
await client.close();
