def seconds(text: str) -> int:
    hours, minutes = text.removesuffix("m").split("h")
    return 3600 * int(hours) + 60 * int(minutes)

assert seconds("1h30m") == 5400
