"""The demo's Python program: JSON and many small objects. Prints a checksum of what it has computed."""

import hashlib
import json


class Account:
    """One of the objects that are made, changed and thrown away."""

    def __init__(self, record):
        self.name = record["name"]
        self.balance = record["balance"]
        self.tags = set(record["tags"])
        self.moves = [(move["day"], move["amount"]) for move in record["moves"]]

    def settle(self):
        self.balance += sum(amount for _, amount in self.moves)
        self.moves.sort(key=lambda move: (move[1], move[0]))


def record(i):
    return {
        "id": i,
        "name": f"account-{i * 7919 % 100003}",
        "balance": i * 37 % 10007 / 4,
        "tags": [f"tag{i * k % 53}" for k in range(i % 5)],
        "moves": [{"day": k, "amount": (i * 31 + k * 17) % 1000 - 500} for k in range(i % 8)],
    }


def main():
    digest = hashlib.sha256()
    for part in range(3):
        text = json.dumps([record(i) for i in range(part * 20000, (part + 1) * 20000)])
        accounts = {}
        for entry in json.loads(text):
            account = Account(entry)
            account.settle()
            accounts.setdefault(account.name, []).append(account)
        for name in sorted(accounts):
            digest.update(f"{name} {[(a.balance, sorted(a.tags), a.moves) for a in accounts[name]]}".encode())
    print(digest.hexdigest())


main()
