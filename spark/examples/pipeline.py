"""Page views through Diskless into Spark: produced for a while, compacted, queried, aggregated as a stream, exported.

    pip install 'diskless-spark[examples]'
    diskless serve --config server.properties &
    python pipeline.py --config server.properties --out views

Nothing but the producer speaks to the broker's Kafka port: Spark reads the bucket. With `--delta` a Delta table is
written too, for which Spark needs a package: `spark-submit --packages io.delta:delta-spark_4.2_2.13:4.4.0 pipeline.py`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from confluent_kafka import Producer
from matplotlib import pyplot
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from diskless_spark import register

PAGES = ("home", "search", "product", "basket", "checkout")
VIEW = "user int, page string, took_ms int"
DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


def produce(bootstrap: str, topic: str, views: int) -> None:
    """Send page views, as a web shop would."""
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": "zstd", "linger.ms": 20})
    for number in range(views):
        view = {"user": number % 97, "page": PAGES[number * number % len(PAGES)], "took_ms": number * 37 % 400}
        while True:
            try:
                producer.produce(topic, json.dumps(view), key=str(view["user"]))
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    if producer.flush(60):
        raise SystemExit("the broker did not take all page views within a minute")


def compact(config: Path, topic: str) -> None:
    """Move the records from WAL objects into segments, as the broker does by itself now and then."""
    command = ["diskless", "compact", "--config", str(config), "--topic", topic, "--everything"]
    subprocess.run(command, check=True)


def views_of(records: DataFrame) -> DataFrame:
    """Page views from what the source gives: a row for each record, with the bytes of its key and value."""
    view = f.from_json(f.col("value").cast("string"), VIEW).alias("view")
    return records.select("timestamp", "partition", "offset", view).select("timestamp", "partition", "offset", "view.*")


def query(views: DataFrame) -> DataFrame:
    """Spark SQL on a topic."""
    views.createOrReplaceTempView("views")
    return views.sparkSession.sql(
        "select page, count(*) as views, count(distinct user) as users, percentile(took_ms, 0.99) as p99_ms "
        "from views group by page order by views desc, page"
    )


def aggregate(records: DataFrame, out: Path) -> DataFrame:
    """Views a second as a stream: what is there now is taken, and the next run goes on where this one ended."""
    stream = (
        views_of(records)
        .withWatermark("timestamp", "10 seconds")
        .groupBy(f.window("timestamp", "1 second"), "page")
        .count()
        .select(f.col("window.start").alias("second"), "page", "count")
        .writeStream.queryName("views_a_second")
        .format("memory")
        .outputMode("complete")
        .option("checkpointLocation", str(out / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    stream.awaitTermination()
    return records.sparkSession.table("views_a_second").orderBy("second", "page")


def plot(per_second: DataFrame, file: Path) -> None:
    """A line for each page."""
    mpl.use("agg")
    figure, axes = pyplot.subplots()
    for page, rows in per_second.toPandas().groupby("page"):
        axes.plot(rows["second"], rows["count"], label=page)
    axes.set_ylabel("views a second")
    axes.legend()
    figure.autofmt_xdate()
    figure.savefig(file)
    pyplot.close(figure)


def export(views: DataFrame, out: Path, *, delta: bool) -> None:
    """The topic as files: Parquet by day, and a Delta table."""
    by_day = views.withColumn("day", f.to_date("timestamp"))
    by_day.write.mode("overwrite").partitionBy("day").parquet(str(out / "parquet"))
    if delta:
        by_day.write.mode("overwrite").format("delta").partitionBy("day").save(str(out / "delta"))


def main(arguments: Sequence[str] | None = None) -> None:
    """Do all of it, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, required=True, help="the broker's server.properties")
    parser.add_argument("--bootstrap", default="127.0.0.1:9092", help="where the broker listens")
    parser.add_argument("--out", type=Path, required=True, help="a folder for what comes out")
    parser.add_argument("--topic", default="views")
    parser.add_argument("--views", type=int, default=100_000)
    parser.add_argument("--delta", action="store_true", help="write a Delta table too")
    asked = parser.parse_args(arguments)
    asked.out.mkdir(parents=True, exist_ok=True)

    produce(asked.bootstrap, asked.topic, asked.views // 2)
    compact(asked.config, asked.topic)
    produce(asked.bootstrap, asked.topic, asked.views - asked.views // 2)

    builder = SparkSession.builder.appName("page views")
    for key, value in (DELTA if asked.delta else {}).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    try:
        register(spark)
        options = {"diskless.config": str(asked.config), "subscribe": asked.topic, "startingOffsets": "earliest"}
        views = views_of(spark.read.format("diskless").options(**options).load())
        query(views).show()
        per_second = aggregate(spark.readStream.format("diskless").options(**options).load(), asked.out)
        plot(per_second, asked.out / "views.png")
        export(views, asked.out, delta=asked.delta)
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
