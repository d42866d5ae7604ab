package compat;

import java.util.List;
import java.util.Map;

/** One record as it was read; {@code headers} is null where client or message format have none. */
record Read(int partition, long offset, byte[] key, byte[] value, List<Map.Entry<String, byte[]>> headers) {}
