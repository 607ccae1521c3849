"""The papers' proxy models: encoders of transformers that read the prompt and predict its length.

Trained on what is on this machine: a local folder of a model or a small random configuration.
Nothing is downloaded, no code of a folder is run, and weights are safetensors.
"""
