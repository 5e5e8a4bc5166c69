// The word that was perhaps meant: the one to which the fewest letters lead, added, left out, replaced or exchanged with the next.
export function distance(a: string, b: string): number {
  const rows = [Array.from({ length: b.length + 1 }, (_, j) => j)];
  for (let i = 1; i <= a.length; i++) {
    rows.push([i]);
    for (let j = 1; j <= b.length; j++) {
      const same = a[i - 1] === b[j - 1] ? 0 : 1;
      let least = Math.min(rows[i - 1][j] + 1, rows[i][j - 1] + 1, rows[i - 1][j - 1] + same);
      if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1])
        least = Math.min(least, rows[i - 2][j - 2] + 1);
      rows[i].push(least);
    }
  }
  return rows[a.length][b.length];
}
export function nearest(word: string, words: string[]): string | undefined {
  const all = words.map((w) => ({ w, far: distance(word.toLowerCase(), w.toLowerCase()) }));
  const best = all.sort((a, b) => a.far - b.far)[0];
  return best && best.far <= Math.max(1, Math.floor(word.length / 3)) ? best.w : undefined;
}
