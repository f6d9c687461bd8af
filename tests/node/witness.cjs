// Preloaded into an MCP server (NODE_OPTIONS=--require): writes what the server itself read and wrote on its
// standard streams to PID.in and PID.out in the folder $KAMS_WITNESS, its command line to PID.argv, and the process
// ids of its ancestors to PID.tree.
// Nothing is touched before the program uses its standard input, so launchers (npm, npx) leave no files.
'use strict';
const fs = require('node:fs');
const path = require('node:path');

function ancestors() {
  const found = [];
  for (let pid = process.pid; pid > 1; ) {
    const stat = fs.readFileSync(`/proc/${pid}/stat`, 'utf8');
    pid = Number(stat.slice(stat.lastIndexOf(')') + 4).split(' ')[0]);
    found.push(pid);
  }
  return found;
}

const folder = process.env.KAMS_WITNESS;
const slot = Object.getOwnPropertyDescriptor(process, 'stdin');
if (folder && slot?.get) {
  let stdin;
  const file = (end) => path.join(folder, `${process.pid}.${end}`);
  const bytes = (chunk, encoding) =>
    typeof chunk === 'string' ? Buffer.from(chunk, typeof encoding === 'string' ? encoding : 'utf8') : chunk;
  Object.defineProperty(process, 'stdin', {
    ...slot,
    get() {
      if (stdin) return stdin;
      stdin = slot.get.call(process);
      const push = stdin.push;
      stdin.push = function (chunk, encoding) {
        if (chunk !== null) {
          if (!fs.existsSync(file('argv'))) {
            fs.writeFileSync(file('argv'), process.argv.join('\0'));
            fs.writeFileSync(file('tree'), ancestors().join('\n'));
          }
          fs.appendFileSync(file('in'), bytes(chunk, encoding));
        }
        return push.call(this, chunk, encoding);
      };
      const write = process.stdout.write;
      process.stdout.write = function (chunk, encoding, done) {
        fs.appendFileSync(file('out'), bytes(chunk, encoding));
        return write.call(this, chunk, encoding, done);
      };
      return stdin;
    },
  });
}
