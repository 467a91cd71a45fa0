// msgpack, as much of it as Wend uses. Integers beyond 2^53 are BigInts, bytes are Buffers, maps are objects.

export function encode(value) {
  const head = (bytes, tag, number) => {
    const head = Buffer.alloc(1 + bytes, tag);
    if (bytes === 8) head.writeBigUInt64BE(BigInt.asUintN(64, BigInt(number)), 1);
    else if (bytes) head.writeUIntBE(number, 1, bytes);
    return head;
  };
  const sized = (size, tag8, tag32) => (tag8 && size < 256 ? head(1, tag8, size) : head(4, tag32, size));
  if (value === null || value === undefined) return head(0, 0xc0);
  if (typeof value === "boolean") return head(0, value ? 0xc3 : 0xc2);
  if (typeof value === "bigint" || Number.isSafeInteger(value)) return head(8, value < 0 ? 0xd3 : 0xcf, value);
  if (typeof value === "number") { const float = head(8, 0xcb, 0); float.writeDoubleBE(value, 1); return float; }
  if (typeof value === "string") return Buffer.concat([sized(Buffer.byteLength(value), 0xd9, 0xdb), Buffer.from(value)]);
  if (value instanceof Uint8Array) return Buffer.concat([sized(value.length, 0xc4, 0xc6), value]);
  if (Array.isArray(value)) return Buffer.concat([sized(value.length, 0, 0xdd), ...value.map(encode)]);
  const pairs = Object.entries(value);
  return Buffer.concat([sized(pairs.length, 0, 0xdf), ...pairs.flat().map(encode)]);
}

export function decode(bytes) {
  let at = 0;
  const uint = (size) => { at += size; return bytes.readUIntBE(at - size, size); };
  const safe = (big) => (Number.isSafeInteger(Number(big)) ? Number(big) : big); // ids may have 64 bits
  const raw = (size) => bytes.subarray(at, (at += size));
  const text = (size) => raw(size).toString("utf8");
  const list = (size) => Array.from({ length: size }, next);
  const map = (size) => Object.fromEntries(Array.from({ length: size }, () => [next(), next()]));
  const next = () => {
    const tag = uint(1);
    if (tag < 0x80) return tag;
    if (tag < 0x90) return map(tag & 0x0f);
    if (tag < 0xa0) return list(tag & 0x0f);
    if (tag < 0xc0) return text(tag & 0x1f);
    if (tag >= 0xe0) return tag - 0x100;
    switch (tag) {
      case 0xc0: return null;
      case 0xc2: case 0xc3: return tag === 0xc3;
      case 0xc4: case 0xc5: case 0xc6: return raw(uint(1 << (tag - 0xc4)));
      case 0xca: at += 4; return bytes.readFloatBE(at - 4);
      case 0xcb: at += 8; return bytes.readDoubleBE(at - 8);
      case 0xcc: case 0xcd: case 0xce: return uint(1 << (tag - 0xcc));
      case 0xcf: at += 8; return safe(bytes.readBigUInt64BE(at - 8));
      case 0xd0: case 0xd1: case 0xd2: { const size = 1 << (tag - 0xd0); at += size; return bytes.readIntBE(at - size, size); }
      case 0xd3: at += 8; return safe(bytes.readBigInt64BE(at - 8));
      case 0xd9: case 0xda: case 0xdb: return text(uint(1 << (tag - 0xd9)));
      case 0xdc: case 0xdd: return list(uint(2 << (tag - 0xdc)));
      case 0xde: case 0xdf: return map(uint(2 << (tag - 0xde)));
    }
    throw new Error(`msgpack tag ${tag} is not one of Wend's`);
  };
  return next();
}
