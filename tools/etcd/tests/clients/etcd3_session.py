"""A session of Python's etcd3 (0.12), as its documentation shows it. Prints what each call tells.

python etcd3_session.py PORT
"""

import sys
import threading

import etcd3

client = etcd3.client(port=int(sys.argv[1]))

client.put("bar", "doot")
print(client.get("bar")[0], client.delete("bar"), client.get("bar")[0])

lease = client.lease(600)
client.put("k", "v", lease=lease)
print(sorted(meta.key for _, meta in client.get_all()), lease.remaining_ttl > 590, lease.keys)
lease.revoke()
print(client.get("k"))

seen = []
events, cancel = client.watch_prefix("w/")


def listen():
    for event in events:
        seen.append((type(event).__name__, event.key, event.value))
        if len(seen) == 3:
            cancel()


listener = threading.Thread(target=listen)
listener.start()
client.put("w/a", "1")
client.put("w/b", "2")
client.delete("w/a")
listener.join(20)
print(seen)

of = client.transactions
succeeded, _ = client.transaction(
    compare=[of.value("w/b") == "2", of.version("w/b") > 0],
    success=[of.put("w/b", "3"), of.get("w/b")],
    failure=[of.delete("w/b")],
)
print(succeeded, client.replace("w/b", "3", "4"), client.put_if_not_exists("w/b", "x"), client.get("w/b")[0])
with client.lock("lock", ttl=20) as lock:
    print(lock.is_acquired())
values = client.get_range("w/a", "w/z", sort_order="descend")
print([value for value, _ in client.get_prefix("w/")], [value for value, _ in values])

client.compact(client.get("w/b")[1].mod_revision)
print(len(list(client.members)), client.status().leader is not None, client.hash() > 0)
client.defragment()
with open("/dev/null", "wb") as nothing:
    client.snapshot(nothing)
print([alarm.alarm_type for alarm in client.create_alarm()], len(list(client.list_alarms())))
client.disarm_alarm()
print(len(list(client.list_alarms())))
