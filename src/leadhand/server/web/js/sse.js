// Server-sent events, read from a byte stream. Pure.
//
// EventSource gives names of events only to those who know them beforehand, and hides why a
// connection was refused; so the stream is fetched, and this reads it.

/**
 * @param {(event: {id: string, event: string, data: string}) => void} emit
 * @returns {(chunk: string) => void}
 */
export function parser(emit) {
  let rest = "";
  let fields = fresh();

  function line(text) {
    if (text === "") {
      if (fields.data.length) emit({ id: fields.id, event: fields.event || "message", data: fields.data.join("\n") });
      else if (fields.moved) emit({ id: fields.id, event: "", data: "" }); // only a position
      fields = fresh(fields.id);
      return;
    }
    if (text.startsWith(":")) return;
    const colon = text.indexOf(":");
    const name = colon < 0 ? text : text.slice(0, colon);
    const value = colon < 0 ? "" : text.slice(colon + 1).replace(/^ /, "");
    if (name === "data") fields.data.push(value);
    else if (name === "id" && !value.includes("\0")) [fields.id, fields.moved] = [value, true];
    else if (name === "event") fields.event = value;
  }

  return (chunk) => {
    rest += chunk;
    // A line may end in \r\n: a \r at the very end waits for what follows it.
    const held = rest.endsWith("\r") ? "\r" : "";
    const lines = (held ? rest.slice(0, -1) : rest).split(/\r\n|\n|\r/);
    rest = lines.pop() + held;
    lines.forEach(line);
  };
}

/** Read a response to its end: `heard` gets the events of each piece that comes, perhaps none. */
export async function readEvents(response, heard) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  const batch = [];
  const feed = parser((event) => batch.push(event));
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    feed(value);
    heard(batch.splice(0));
  }
}

function fresh(id = "") {
  return { id, event: "", data: [], moved: false };
}
