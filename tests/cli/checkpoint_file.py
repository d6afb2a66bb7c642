"""A checkpoint's safetensors file, changed as nobody should, but with the checksums that belong to it."""
import json
import struct


def split_file(path):
    """Its header, and the bytes behind that."""
    content = path.read_bytes()
    size, = struct.unpack_from("<Q", content)
    return json.loads(content[8:8 + size]), bytearray(content[8 + size:])


def join_file(path, header, data):
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def rewrite_texts(path, change):
    """Changes the texts of a file, as an older version would have written them: without their checksum."""
    header, data = split_file(path)
    texts = header["__metadata__"]
    del texts["checksum of texts"]
    change(texts)
    join_file(path, header, data)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def spoil_tensor(path, name, value):
    """Puts a number into the middle of a tensor."""
    header, data = split_file(path)
    first, end = header[name]["data_offsets"]
    before = crc32c(name.encode() + data[first:end])
    struct.pack_into("<f", data, first + (end - first) // 8 * 4, value)
    change = crc32c(name.encode() + data[first:end]) - before
    texts = header["__metadata__"]
    texts["checksum"] = f"{int(texts['checksum'], 16) + change & 0xFFFFFFFF:08x}"
    del texts["checksum of texts"]
    join_file(path, header, data)
