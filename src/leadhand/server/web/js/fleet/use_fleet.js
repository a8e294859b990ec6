// Documents of the fleet: where a task is in the gate or the merge queue is not an event of the log.
import { useEffect, useMemo } from "../lib.js";
import { follow, onRefetch, resource, soon } from "../store.js";

const REFRESH_MS = 2500;
const EVENT_MS = 1000;

/** A document of the fleet: asked for again after events, and every few seconds for what the log does not hold. */
export function useFleet(ask, deps) {
  const found = useMemo(() => resource(ask), deps);
  useEffect(() => {
    found.refresh();
    const stops = [onRefetch(found.soon), follow(soon(() => document.hidden || found.refresh(), EVENT_MS))];
    const timer = setInterval(() => document.hidden || found.refresh(), REFRESH_MS);
    return () => (stops.forEach((stop) => stop()), clearInterval(timer), found.drop());
  }, [found]);
  return found;
}
