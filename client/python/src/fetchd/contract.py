"""The messages of the contract, fetchd.v1, made from descriptor.binpb.

They are in a pool of their own, so that stubs which a program has generated do not clash
with them. contract.FetchOutcome is a class, and so on for every message.
"""

import pathlib

from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory

SERVICE = "fetchd.v1.FetchService"
Message = message.Message

_WIRE = "fetchd.wire"


def _load():
    data = pathlib.Path(__file__).with_name("descriptor.binpb").read_bytes()
    pool = descriptor_pool.DescriptorPool()
    files = descriptor_pb2.FileDescriptorSet.FromString(data).file
    for file in files:
        pool.AddSerializedFile(file.SerializeToString())
    pool.AddSerializedFile(_wire_file(files).SerializeToString())
    if hasattr(message_factory, "GetMessageClass"):
        get = message_factory.GetMessageClass
    else:  # before protobuf 4.22
        get = message_factory.MessageFactory(pool).GetPrototype
    names = [m.name for file in files if file.package == "fetchd.v1" for m in file.message_type]
    return pool, get, names


def _wire_file(files):
    """Returns the file of the messages of FetchMany in which a task's request and event are
    bytes. So each is encoded once, and an event does not keep the message alive in which it
    arrived. It also has the messages of google.rpc in which errors of the service arrive."""
    kind = descriptor_pb2.FieldDescriptorProto
    wire = descriptor_pb2.FileDescriptorProto(name="fetchd/wire.proto", package=_WIRE, syntax="proto3")
    wanted = ("FetchManyRequest", "Task", "FetchManyResponse", "TaskEvent")
    for file in files:
        for m in file.message_type:
            if file.package != "fetchd.v1" or m.name not in wanted:
                continue
            copy = wire.message_type.add()
            copy.CopyFrom(m)
            for field in copy.field:
                if field.type_name.rpartition(".")[2] in wanted:
                    field.type_name = f".{_WIRE}.{field.type_name.rpartition('.')[2]}"
                elif field.type == kind.TYPE_MESSAGE:
                    field.type = kind.TYPE_BYTES
                    field.ClearField("type_name")
    for name, fields in {
        "Status": [("code", 1, "int32"), ("message", 2, "string"), ("details", 3, "Any")],
        "Any": [("type_url", 1, "string"), ("value", 2, "bytes")],
        "BadRequest": [("field_violations", 1, "Violation")],
        "Violation": [("field", 1, "string"), ("description", 2, "string")],
        "ErrorInfo": [("reason", 1, "string"), ("domain", 2, "string"), ("metadata", 3, "Entry")],
        "Entry": [("key", 1, "string"), ("value", 2, "string")],
        "RetryInfo": [("retry_delay", 1, "Duration")],
        "Duration": [("seconds", 1, "int64"), ("nanos", 2, "int32")],
    }.items():
        m = wire.message_type.add(name=name)
        for field, number, of in fields:
            scalar = getattr(kind, "TYPE_" + of.upper(), None)
            if scalar:
                m.field.add(name=field, number=number, type=scalar, label=kind.LABEL_OPTIONAL)
            else:
                m.field.add(name=field, number=number, type=kind.TYPE_MESSAGE, type_name=f".{_WIRE}.{of}", label=kind.LABEL_REPEATED)
    return wire


_pool, _get, _names = _load()
_short = {}  # enum descriptor's full name -> {number: short name}


def message_class(name):
    """Returns the class of a message, such as "fetchd.v1.FetchRequest"."""
    return _get(_pool.FindMessageTypeByName(name))


globals().update({name: message_class(SERVICE.rpartition(".")[0] + "." + name) for name in _names})
for _name in _names:  # for help()
    globals()[_name].__module__ = __name__


def short_names(enum):
    """Returns the names of an enum's values by number, without the prefix, in lower case."""
    if enum.full_name not in _short:
        prefix = "".join("_" + c if c.isupper() else c.upper() for c in enum.name)[1:] + "_"
        _short[enum.full_name] = {v.number: v.name[len(prefix) :].lower() for v in enum.values}
    return _short[enum.full_name]


def enum_name(message, field):
    """Returns the name of the value that an enum field has, such as "http_server_error". It is
    "" for an unset field, and the number as text for a value that is newer than this package."""
    number = getattr(message, field)
    if not number:
        return ""
    return short_names(message.DESCRIPTOR.fields_by_name[field].enum_type).get(number, str(number))
