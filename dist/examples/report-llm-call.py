#!/usr/bin/env python3
"""Tells kamsd of one model call: report-llm-call.py SESSION MODEL PROMPT_TOKENS COMPLETION_TOKENS"""
import http.client, json, os, socket, sys

class Kams(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(10)
        self.sock.connect(os.environ.get("KAMS_SOCKET", "/run/kams/kams.sock"))

if len(sys.argv) != 5:
    sys.exit(__doc__)
session, model, prompt, completion = sys.argv[1:]
call = {"session_id": session, "model": model, "prompt_tokens": int(prompt), "completion_tokens": int(completion)}
kams = Kams("kams")
kams.request("POST", "/v1/llm-calls", json.dumps({"calls": [call]}), {"content-type": "application/json"})
answer = kams.getresponse()
print(answer.read().decode(), end="")
sys.exit(0 if answer.status == 200 else 1)
