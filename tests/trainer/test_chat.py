import pytest

from trainer.chat import ChatFormat
from trainer.models import character_tokenizer

CHATML = (
    "{% for m in messages %}<sys>{{ m['role'] }}\n{{ m['content'] }}<end>\n{% endfor %}"
    "{% if add_generation_prompt %}<sys>assistant\n{% endif %}"
)


def test_the_pieces_join_to_what_the_template_would_write():
    tokenizer = character_tokenizer()
    tokenizer.chat_template = CHATML
    chat = ChatFormat(tokenizer, "play")
    act = tokenizer("N")["input_ids"]
    end = [tokenizer.eos_token_id]
    whole = tokenizer.apply_chat_template(
        [
            {"role": "system", "content": "play"},
            {"role": "user", "content": "here"},
            {"role": "assistant", "content": "N"},
            {"role": "user", "content": "there"},
        ],
        tokenize=False,
        add_generation_prompt=True,
    )
    ended = chat.first("here") + act + end + chat.next("there", ended=True)
    cut = chat.first("here") + act + chat.next("there", ended=False)
    assert tokenizer.decode(ended) == tokenizer.decode(cut) == whole


def test_a_template_that_rewrites_earlier_turns_is_refused():
    tokenizer = character_tokenizer()
    tokenizer.chat_template = "{{ messages | length }}" + tokenizer.chat_template
    with pytest.raises(ValueError, match="rewrites earlier turns"):
        ChatFormat(tokenizer)


def test_a_tokenizer_without_template_is_refused():
    tokenizer = character_tokenizer()
    tokenizer.chat_template = None
    with pytest.raises(ValueError, match="no chat template"):
        ChatFormat(tokenizer)
