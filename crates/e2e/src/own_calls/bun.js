// server ADDRESS PORT: answers a request with its body. client ADDRESS PORT BYTES: asks, and checks the answer.
const [role, hostname, port, bytes] = process.argv.slice(2);
if (role === "server") {
  Bun.serve({ hostname, port: Number(port), fetch: async (request) => new Response(await request.arrayBuffer()) });
} else {
  const body = new Uint8Array(Number(bytes)).map((_, index) => (index * 7) % 251);
  for (let round = 0; round < 3; round++) {
    const answer = await fetch(`http://${hostname}:${port}/`, { method: "POST", body });
    const got = new Uint8Array(await answer.arrayBuffer());
    if (got.length !== body.length || !got.every((byte, index) => byte === body[index])) {
      throw new Error(`${got.length} bytes came, or others than were sent`);
    }
  }
  console.log("same");
}
