"""Models of the speech graph: thinker, phonemes, talker, code2wav. Plain torch, explicit device, dtype and seed."""
