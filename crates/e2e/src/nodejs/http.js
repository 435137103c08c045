// An HTTP server that sends back what it is sent, and a client that checks it.
'use strict';
const http = require('http');
const crypto = require('crypto');
const [, , role, address, port, bytes, requests] = process.argv;

function fail(why) {
  console.error(String(why && why.stack || why));
  process.exit(1);
}

function serve() {
  const server = http.createServer((request, response) => {
    response.setHeader('Content-Type', 'application/octet-stream');
    request.pipe(response);
  });
  server.listen(Number(port), address, () => console.log('ready'));
  process.on('SIGTERM', () => process.exit(0));
}

function ask(agent, body) {
  return new Promise((resolve, reject) => {
    const options = { host: address, port, method: 'POST', agent, headers: { 'Content-Length': body.length } };
    const request = http.request(options, (response) => {
      const parts = [];
      response.on('data', (part) => parts.push(part));
      response.on('error', reject);
      response.on('end', () => {
        const got = Buffer.concat(parts);
        if (got.equals(body)) resolve();
        else reject(new Error(`${body.length} bytes were sent, ${got.length} others came`));
      });
    });
    request.on('error', reject);
    request.end(body);
  });
}

async function main() {
  const agent = new http.Agent({ keepAlive: true, maxSockets: 4 });
  const all = [];
  for (let i = 0; i < Number(requests); i++) {
    all.push(ask(agent, crypto.randomBytes(Math.max(1, Math.floor(Number(bytes) / (i + 1))))));
  }
  await Promise.all(all);
  // One after the other, on a connection that is kept.
  for (let i = 0; i < Number(requests); i++) await ask(agent, crypto.randomBytes(i * 1000 + 1));
  agent.destroy();
}

if (role === 'server') serve();
else main().then(() => process.exit(0), fail);
