// The arithmetic that translated programs call: float32 and 32-bit integers as JAX computes them.

export const F = Math.fround;

const view = new DataView(new ArrayBuffer(4));

export function bits_to_float(word) {
  view.setUint32(0, word);
  return view.getFloat32(0);
}

export function float_to_bits(number) {
  view.setFloat32(0, number);
  return view.getUint32(0);
}

// The index that JAX reads instead of one outside 0..last.
export function within(index, last) {
  return index < 0 ? 0 : index > last ? last : index;
}

export function integer(number, low, high) {
  return number !== number ? 0 : number <= low ? low : number >= high ? high : Math.trunc(number);
}

export function quotient(a, b) {
  return b === 0 ? -1 : Math.trunc(a / b);
}

export const wrap_int8 = (number) => (number << 24) >> 24;
export const wrap_uint8 = (number) => number & 255;
export const wrap_int16 = (number) => (number << 16) >> 16;
export const wrap_uint16 = (number) => number & 65535;

export function square(x) {
  return F(x * x);
}

// Whole powers by repeated squaring, in the order in which XLA multiplies.
export function power(x, exponent) {
  let base = x, result = 1, left = Math.abs(exponent), started = false;
  while (left > 0) {
    if (left & 1) {
      result = started ? F(result * base) : base;
      started = true;
    }
    left >>= 1;
    if (left) base = F(base * base);
  }
  return exponent < 0 ? F(1 / result) : result;
}

export function whole_power(x, exponent) {
  let result = 1;
  for (let k = 0; k < exponent; k++) result = Math.imul(result, x);
  return result;
}

export function round_even(x) {
  const near = Math.round(x);
  return Math.abs(x % 1) === 0.5 && near % 2 !== 0 ? near - 1 : near;
}

export function round_away(x) {
  return Math.sign(x) * Math.round(Math.abs(x));
}

export function ones(word) {
  let count = 0;
  for (let rest = word >>> 0; rest; rest &= rest - 1) count++;
  return count;
}

// The upper 32 bits of the product of two unsigned words.
export function high_word(a, b) {
  return Number((BigInt(a >>> 0) * BigInt(b >>> 0)) >> 32n);
}

export function next_after(from, to) {
  if (from === to || from !== from || to !== to) return to;
  if (from === 0) return to > 0 ? 1.401298464324817e-45 : -1.401298464324817e-45;
  const bits = float_to_bits(from);
  return bits_to_float((from < to) === (from > 0) ? bits + 1 : bits - 1);
}

// Complementary error function by its continued fraction, error function by its series: both to double precision.
export function erf(x) {
  const size = Math.abs(x);
  if (size > 6) return Math.sign(x);
  if (size < 2.5) {
    let term = x, sum = x;
    for (let n = 1; n < 80; n++) {
      term *= (-x * x) / n;
      sum += term / (2 * n + 1);
    }
    return (2 / Math.sqrt(Math.PI)) * sum;
  }
  let fraction = 0;
  for (let n = 60; n > 0; n--) fraction = n / 2 / (size + fraction);
  return Math.sign(x) * (1 - Math.exp(-size * size) / (Math.sqrt(Math.PI) * (size + fraction)));
}

// The inverse error function: a rational starting value, then Newton's steps on erf.
export function erf_inv(y) {
  if (y <= -1 || y >= 1) return y === 1 ? Infinity : y === -1 ? -Infinity : NaN;
  const log = Math.log(1 - y * y), half = 2 / (Math.PI * 0.147) + log / 2;
  let x = Math.sign(y) * Math.sqrt(Math.sqrt(half * half - log / 0.147) - half);
  for (let k = 0; k < 4; k++) x -= (erf(x) - y) / ((2 / Math.sqrt(Math.PI)) * Math.exp(-x * x));
  return x;
}

// The order of JAX's sort: NaN last, −0 with 0.
export function compare(a, b) {
  if (a !== a || b !== b) return (a !== a) - (b !== b);
  return a < b ? -1 : a > b ? 1 : 0;
}

export function ordered(size, order) {
  return Array.from({ length: size }, (_, i) => i).sort(order);
}

export const mixed = new Uint32Array(2);
const turns = [13, 15, 26, 6, 17, 29, 16, 24];

// Threefry-2x32 with 20 rounds (Salmon et al. 2011), the generator of jax.random; the result is in `mixed`.
export function threefry(key0, key1, count0, count1) {
  const keys = [key0, key1, (key0 ^ key1 ^ 0x1bd11bda) >>> 0];
  let a = (count0 + key0) >>> 0, b = (count1 + key1) >>> 0;
  for (let round = 0; round < 5; round++) {
    for (let k = 0; k < 4; k++) {
      const turn = turns[(round % 2) * 4 + k];
      a = (a + b) >>> 0;
      b = (((b << turn) | (b >>> (32 - turn))) ^ a) >>> 0;
    }
    a = (a + keys[(round + 1) % 3]) >>> 0;
    b = (b + keys[(round + 2) % 3] + round + 1) >>> 0;
  }
  mixed[0] = a;
  mixed[1] = b;
}
