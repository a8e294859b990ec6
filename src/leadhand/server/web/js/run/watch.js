// What a step under way prints and says of how far it is: read while somebody looks at it.
import { useEffect, useState } from "../lib.js";
import { api } from "../api.js";
import { parser } from "../sse.js";

const PAUSE_MS = 1000;

/** @returns {{attempt: number, message: string, fraction: number|null, output: string} | null} */
export function useLive(run, step, running) {
  const [found, setFound] = useState(null);
  useEffect(() => {
    if (!running) return undefined;
    const control = new AbortController();
    follow(run, step, control.signal, setFound);
    return () => control.abort();
  }, [run, step, running]);
  return running ? found : null;
}

async function follow(run, step, signal, heard) {
  while (!signal.aborted) {
    await once(run, step, signal, heard).catch(() => {});
    // It ended, or has not begun: another attempt may come.
    if (!signal.aborted) await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
  }
}

async function once(run, step, signal, heard) {
  const response = await api.live(run, step, signal);
  if (!response.ok || !response.body) return;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  const feed = parser(({ event, data }) => event === "live" && heard(JSON.parse(data)));
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    feed(value);
  }
}
