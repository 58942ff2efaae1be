// Formats numbers and times of the API, which are text: JSON has no 64-bit numbers.

const numbers = new Intl.NumberFormat('en');

// int parses a number of the API. It returns zero if there is none.
export function int(value) {
  const n = Number(value ?? 0);
  return Number.isFinite(n) ? n : 0;
}

export function count(value) {
  return numbers.format(int(value));
}

// rate formats a number per second.
export function rate(n) {
  if (n === 0) return '0';
  return n < 10 ? n.toFixed(n < 1 ? 2 : 1) : numbers.format(Math.round(n));
}

// span formats seconds in the largest unit that fits.
export function span(s) {
  if (s < 120) return `${Math.max(0, Math.round(s))} s`;
  if (s < 2 * 3600) return `${Math.round(s / 60)} min`;
  if (s < 48 * 3600) return `${Math.round(s / 3600)} h`;
  return `${numbers.format(Math.round(s / 86400))} days`;
}

// when formats a time of the API, compared with now in milliseconds.
export function when(time, now) {
  const at = Date.parse(time);
  if (Number.isNaN(at)) return '';
  const s = (at - now) / 1000;
  if (Math.abs(s) < 1) return 'now';
  return s > 0 ? `in ${span(s)}` : `${span(-s)} ago`;
}
