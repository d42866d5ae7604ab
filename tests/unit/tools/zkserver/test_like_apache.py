"""The same requests to Apache ZooKeeper and to this server: the answers say the same."""

import pytest

from barnabas.tools.zkserver.acl import OPEN, Acl, Identity
from barnabas.tools.zkserver.jute import (
    Reader,
    encode_buffer,
    encode_int,
    encode_long,
    encode_string,
    encode_vector,
)
from barnabas.tools.zkserver.requests import CREATES, Op, encode_acl
from tests.support.effort import drawing, examples
from tests.support.zookeeper_wire import WireClient, create, multi, path_and_version, read, set_data

REQUESTS = 400
NAMES = ("a", "b", "c")
LASTING = ("p", "q")


ROOT = encode_string("/")


def stat(reader, of_root):
    """The comparable parts of a Stat: no transaction numbers, no times, and of the root no number of children.

    The root's children are also those of the other tests that use these servers.
    """
    created, modified = reader.int64(), reader.int64()
    times = reader.int64(), reader.int64()
    counts = [reader.int32() for _ in range(3)]
    owner, size, children, last = reader.int64(), reader.int32(), reader.int32(), reader.int64()
    if of_root:
        counts[1] = children = -1
    return (*counts, bool(owner), size, children, created == modified, times[0] <= times[1], last >= created)


def body_of(op, body, of_root):
    """An answer as values that can be compared."""
    reader = Reader(body)
    if op in CREATES:
        return reader.string(), stat(reader, of_root) if reader.rest else None
    if op in (Op.EXISTS, Op.SET_DATA, Op.SET_ACL):
        return stat(reader, of_root)
    if op == Op.GET_DATA:
        return reader.buffer(), stat(reader, of_root)
    if op == Op.GET_ACL:
        return reader.vector(lambda: (reader.int32(), reader.string(), reader.string())), stat(
            reader, of_root
        )
    if op in (Op.GET_CHILDREN, Op.GET_CHILDREN2, Op.GET_EPHEMERALS):
        return sorted(reader.vector(reader.string)), stat(reader, of_root) if reader.rest else None
    if op in (Op.MULTI, Op.MULTI_READ):
        return list(parts_of(reader, of_root))
    return body


def answered(client, op, body):
    try:
        code, answer = client.ask(op, body)
    except ConnectionError as error:
        raise AssertionError(f"{op.name} {body!r}: {error}") from error
    return code, answer if code else body_of(op, answer, ROOT in body)


def parts_of(reader, of_root):
    while True:
        op, is_end, code = reader.int32(), reader.boolean(), reader.int32()
        if is_end:
            return
        if op == -1:
            yield "error", code, reader.int32()
        elif op in (Op.CREATE, Op.CREATE2):
            yield op, reader.string(), stat(reader, of_root) if op == Op.CREATE2 else None
        elif op == Op.SET_DATA:
            yield op, stat(reader, of_root)
        elif op == Op.GET_DATA:
            yield op, reader.buffer(), stat(reader, of_root)
        elif op == Op.GET_CHILDREN:
            yield op, sorted(reader.vector(reader.string))
        else:
            yield op


class Draw:
    """Random requests below one znode; what they name is there about every other time."""

    def __init__(self, random, root):
        self.random = random
        self.root = root

    def plain(self):
        parts = [self.random.choice(NAMES) for _ in range(self.random.choice((1, 1, 2, 2, 3)))]
        return "/".join((self.root, *parts))

    def path(self):
        if self.random.random() < 0.02:
            odd = ("a", f"{self.root}/", f"{self.root}//a", f"{self.root}/../a", "/zookeeper")
            return self.random.choice(odd)
        return self.plain()

    def path_to_write(self):
        """A path, or the root's."""
        return self.random.choice(("", "/")) if self.random.random() < 0.01 else self.path()

    def lasting(self):
        """A path for lasting watches: Apache's server forgets those for which there is one of another mode, too."""
        return f"{self.root}/{self.random.choice(LASTING)}"

    def version(self):
        return self.random.choice((-1, -1, 0, 1, 2))

    def acl(self):
        return self.random.choice(
            (OPEN,) * 6
            + (
                (Acl(31, Identity("auth", "")),),
                (Acl(1, Identity("world", "anyone")), Acl(31, Identity("digest", "u:x"))),
                (Acl(31, Identity("world", "someone")),),
                (),
            )
        )

    def write(self):
        random = self.random
        op = random.choice((Op.CREATE, Op.CREATE2, Op.CREATE2, Op.SET_DATA, Op.SET_DATA, Op.DELETE, Op.CHECK))
        if op in CREATES:
            return op, create(
                self.path_to_write(),
                random.randbytes(random.randrange(5)),
                random.choice((0, 0, 0, 1, 2, 3, 4, 9)),
                self.acl(),
            )
        if op == Op.SET_DATA:
            return op, set_data(self.path_to_write(), random.randbytes(random.randrange(5)), self.version())
        return op, path_and_version(self.path_to_write(), self.version())

    def request(self):
        random = self.random
        kind = random.random()
        if kind < 0.55:
            op, body = self.write()
            return (op, body) if op != Op.CHECK else (Op.SYNC, encode_string(self.path()))
        if kind < 0.65:
            return Op.MULTI, multi(*(self.write() for _ in range(random.randrange(4))))
        if kind < 0.7:
            reads = [(random.choice((Op.GET_DATA, Op.GET_CHILDREN)), read(self.path())) for _ in range(3)]
            return Op.MULTI_READ, multi(*reads)
        if kind < 0.73:
            return Op.SET_ACL, encode_string(self.path()) + encode_vector(
                self.acl(), encode_acl
            ) + encode_int(self.version())
        if kind < 0.75:
            return Op.AUTH, encode_int(0) + encode_string("digest") + encode_buffer(b"user:secret")
        if kind < 0.78:
            return Op.GET_ACL, encode_string(self.path())
        if kind < 0.8:
            return Op.GET_EPHEMERALS, encode_string(self.root)
        if kind < 0.82:
            return Op.GET_ALL_CHILDREN_NUMBER, encode_string(self.path())
        if kind < 0.85:
            return Op.ADD_WATCH, encode_string(self.lasting()) + encode_int(random.choice((0, 1)))
        if kind < 0.87:
            return Op.REMOVE_WATCHES, encode_string(self.lasting()) + encode_int(random.choice((1, 2, 3)))
        if kind < 0.88:
            paths = [encode_vector([self.plain()], encode_string) for _ in range(3)]
            return Op.SET_WATCHES, encode_long(1 << 60) + b"".join(paths)
        op = random.choice((Op.EXISTS, Op.GET_DATA, Op.GET_CHILDREN, Op.GET_CHILDREN2))
        return op, read(self.path(), random.random() < 0.5)


@pytest.mark.parametrize("run", range(examples(3)))
def test_random_requests_are_answered_alike(real_zookeeper, own_zookeeper, run):
    draw = Draw(drawing(run), f"/like-{run}")
    with WireClient(real_zookeeper) as apache, WireClient(own_zookeeper) as ours:
        compare(draw, (apache, ours))


def compare(draw, clients):
    """Send both the same requests."""
    for client in clients:
        assert client.ask(Op.CREATE, create(draw.root))[0] == 0
    for number in range(REQUESTS):
        op, body = draw.request()
        theirs, ours = (answered(client, op, body) for client in clients)
        what = f"request {number}: {op.name} {body!r}"
        assert ours == theirs, what
        if number % 10 == 0 and op != Op.AUTH:
            theirs, ours = (sorted(client.told()) for client in clients)
            assert ours == theirs, f"watches after {what}"
    for client in clients:
        client.end()
