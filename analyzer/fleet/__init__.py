"""Thousands of models -> a lake: Parquet tables of what `inspect` says of each, which one can ask in SQL.

`find` names the models, an engine hands shards of them to `shard.survey_shard`, `lake` writes each shard complete or
not at all, `sql` asks.
"""
