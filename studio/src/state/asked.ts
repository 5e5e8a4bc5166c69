// Numbers of the page say where the program says them: data-json="plan /peak_bytes" is the entry peak_bytes of what the command answers
// with which `plan` was asked; * and {3,5} stand for the sum over all, or over these. In arithmetic a reference stands in brackets:
// "[plan /peak_bytes] / [plan-plain /peak_bytes] - 1". Tests ask the command line the same, and compare all that is seen.
export const asked = new Map<string, string[]>(); // the words of each command
// The change of a number in percent.
export const changed_by = (now: string, was: string) => `[${now}] / [${was}] - 1`;
// The sum of an entry over some of a list.
export const sum_of = (list: string, which: Iterable<number>, entry: string) =>
  `${list}/{${[...new Set(which)].join(",")}}/${entry}`;
