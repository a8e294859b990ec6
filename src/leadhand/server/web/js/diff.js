// A difference of plans, put in order for people. Pure.

/** Changes gathered by the step they are about, in the order they came. Pure. */
export function byStep(changes) {
  const groups = new Map();
  for (const change of changes) {
    const [, step, rest] = change.path.match(/^steps\.([^.[]+)\.?(.*)$/) ?? [null, "", change.path];
    if (!groups.has(step)) groups.set(step, []);
    groups.get(step).push({ ...change, rest });
  }
  return [...groups];
}
