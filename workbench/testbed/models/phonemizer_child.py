"""Child process that turns text into phonemes with piper-tts, which is GPL: run by path, never imported.

One JSON object per line on standard input and output. The first line out is ``{"ready": VERSION}`` or
``{"error": REASON}``; then each ``{"text": T}`` is answered by ``{"phonemes": [...]}`` or ``{"error": REASON}``.
"""

import importlib.metadata
import json
import sys


def main() -> None:
    """Answer lines until the input ends."""
    try:
        from piper.phonemize_espeak import EspeakPhonemizer

        phonemizer = EspeakPhonemizer()
    except Exception as error:  # whatever is wrong with the package, the parent must hear of it
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}), flush=True)
        return
    print(json.dumps({"ready": importlib.metadata.version("piper-tts")}), flush=True)
    for line in sys.stdin:
        try:
            sentences = phonemizer.phonemize("en-us", json.loads(line)["text"])
            answer: dict[str, object] = {"phonemes": [phoneme for sentence in sentences for phoneme in sentence]}
        except Exception as error:  # one bad text must not end the process
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
